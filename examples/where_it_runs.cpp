// SPDX-License-Identifier: BSL-1.0
// Where a function runs stands in its return type; what it may ask for, in its first parameter. And
// two ways to give functions to programs that are not this one. Prints
//
//   a plain function ran on the pool
//   a coroutine ran on the worker's thread
//   an immediate function ran on the thread that read the request
//   worker1 was called by worker0
//   named: 21
#include <weft/run.hpp>

#include <cstddef>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

/// The thread of a worker's coroutines, and that of its links, as numbers.
using thread_number = std::size_t;
thread_number this_thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }

thread_number plain() { return this_thread(); }  // may compute for long
asio::awaitable<thread_number> coroutine() {
  co_return this_thread();
}  // may await, must not block
weft::immediate<thread_number> at_once() { return this_thread(); }  // shorter than a switch

/// A `worker&` or a `const caller&` comes first, and is not the caller's to give.
std::string who_calls(const weft::caller& who) {
  return who.self().name() + " was called by " + std::string(who.name());
}

namespace {
int half(int x) { return x / 2; }  // a name that only this file knows, so it gets another
}  // namespace
constexpr auto& half_everywhere = weft::named<"where_it_runs/half", &half>;

/// Nobody in this program calls it, but others may: `expose` is compiled in, and need not run.
double for_others(double x) { return x / 2; }
void serve_others() { weft::expose<&for_others>(); }

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::peer there = me.peer(1);
  const thread_number pool = co_await there.call<&plain>();
  const thread_number own = co_await there.call<&coroutine>();
  const thread_number links = co_await there.call<&at_once>();
  if (pool != own && pool != links) std::cout << "a plain function ran on the pool\n";
  if (own != links) {
    std::cout << "a coroutine ran on the worker's thread\n"
                 "an immediate function ran on the thread that read the request\n";
  }
  std::cout << co_await there.call<&who_calls>() << '\n';
  std::cout << "named: " << co_await there.call<half_everywhere>(42) << '\n';
}

int main() {
  weft::options o{.workers = 2};
  o.io_threads = 1;  // else the worker's own thread reads its links when it is at its loop
  return weft::run<weft::unix_socket, weft::tcp>(main_, o);
}
