// SPDX-License-Identifier: BSL-1.0
// Two processes that have an io_context already, on which a clock ticks: a worker joins them there.
#include <weft/run.hpp>

#include <asio/co_spawn.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <exception>
#include <iostream>

int twice(int x) { return 2 * x; }

asio::awaitable<void> tick(int& ticks) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (; ticks < 3; ++ticks) {
    timer.expires_after(std::chrono::milliseconds(1));
    co_await timer.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> work(asio::io_context& io, weft::options o, weft::error& end) {
  weft::owned_worker me = co_await weft::join<weft::unix_socket, weft::tcp>(io, std::move(o));
  if (me->rank() == 0) std::cout << co_await me->peer(1).call<&twice>(21) << '\n';
  me.leave();                 // this worker's part is done ...
  end = co_await me.ended();  // ... and it serves until everybody's is
}

int main() {
  weft::options o{.workers = 2};
  if (!weft::placement_from_environment()) return weft::launch_local(o);
  asio::io_context io;
  int ticks = 0;
  weft::error end;
  const auto rethrow = [](std::exception_ptr e) {
    if (e) std::rethrow_exception(e);
  };
  asio::co_spawn(io, tick(ticks), rethrow);
  asio::co_spawn(io, work(io, o, end), rethrow);
  io.run();  // of one thread, which serves
  std::cout << ticks << " ticks\n";
  if (end) std::cerr << end.message() << '\n';
  return end ? 1 : 0;
}
