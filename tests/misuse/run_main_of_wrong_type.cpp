// expect: weft: main_ must be callable as asio::awaitable<void> main_\(weft::worker& me\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/run.hpp>

int main_(weft::worker& me) { return static_cast<int>(me.rank()); }

int main() { return weft::run<weft::inproc>(main_); }
