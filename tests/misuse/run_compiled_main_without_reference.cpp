// expect: weft: main_ must be callable as asio::awaitable<void> main_\(weft::worker& me\)
// SPDX-License-Identifier: BSL-1.0
// The same in a program whose engine is compiled elsewhere.
#define WEFT_SEPARATE_COMPILATION
#include <weft/run.hpp>

asio::awaitable<void> main_(weft::worker me);

int main() { return weft::run<weft::inproc>(main_); }
