// expect: weft: run needs at least one transport: weft::run<weft::tcp>\(main_\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/run.hpp>

asio::awaitable<void> main_(weft::worker& me);

int main() { return weft::run(main_); }
