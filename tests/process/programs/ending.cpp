// SPDX-License-Identifier: BSL-1.0
// What the tests of a run's end start: `ending <deed> [inproc]`, as three workers.
#include <weft/run.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <atomic>
#include <chrono>
#include <core/for_ever.hpp>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

#include <signal.h>
#include <unistd.h>

namespace ending {

using namespace std::chrono_literals;
using weft::worker;

std::string deed;
std::atomic<int> done{0};

int add(int a, int b) { return a + b; }
void say(const std::string& text) { std::cout << text + "\n" << std::flush; }

constexpr int all_notes = 1000;
void slow_note() {
  std::this_thread::sleep_for(1ms);
  if (++done == all_notes) say("all notes are done");
}
void chain(worker& me, int left) {
  if (left == 0) return say("the chain has ended");
  me.peer((me.rank() + 1) % me.world_size()).post<&chain>(left - 1);
}
void stuck() {
  // bounded: whoever started this process ends it
  for (;;) std::this_thread::sleep_for(1s);
}
void note_and_throw() {
  say("a post that throws");
  throw std::runtime_error("unheard");
}
asio::awaitable<void> wait_for_ever() { co_await weft::testing::for_ever(); }
/// What the main of a rank has reached; for three ranks, as threads they share this memory.
struct stage {
  weft::intrusive_ptr<weft::event> reached[3] = {weft::make_intrusive<weft::event>(),
                                                 weft::make_intrusive<weft::event>(),
                                                 weft::make_intrusive<weft::event>()};
};
stage greeted, ready;
asio::awaitable<void> until_greeted(worker& me) {
  co_await weft::event::async_wait(greeted.reached[me.rank()], asio::use_awaitable);
}
asio::awaitable<void> until_ready(worker& me) {
  co_await weft::event::async_wait(ready.reached[me.rank()], asio::use_awaitable);
}
asio::awaitable<void> fail() {
  throw std::runtime_error("the handler is torn");
  co_return;
}
/// What the worker of rank `doer` does last.
std::uint32_t doer = 0;
asio::awaitable<void> do_it(worker& me) {
  const auto next = me.peer(1);
  if (deed == "work") {
    for (int i = 0; i < all_notes; ++i) next.post<&slow_note>();
    next.post<&chain>(100);
    next.post<&note_and_throw>();
  }
  if (deed == "cut") next.post<&wait_for_ever>();
  if (deed == "stuck") {
    std::cout << "not flushed";
    static_cast<void>(co_await next.call<&stuck>(weft::within(100ms), weft::as_expected));
  }
  if (deed == "stuck-here") me.peer(me.rank()).post<&stuck>();
  // These come when its main has returned, and said so.
  if (deed == "spin") asio::post(weft::detail::context_of(me), &stuck);
  if (deed == "stop") asio::post(weft::detail::context_of(me), [] { ::raise(SIGSTOP); });
  if (deed == "leave") std::exit(0);
  if (deed == "handler") {
    asio::co_spawn(weft::detail::context_of(me), fail(), [](std::exception_ptr e) {
      if (e) std::rethrow_exception(e);
    });
  }
}

asio::awaitable<void> greet_all(worker& me) {
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    static_cast<void>(co_await me.peer(r).call<&add>(1, 2));
  }
  greeted.reached[me.rank()]->set();
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    co_await me.peer(r).call<&until_greeted>();
  }
  say("greeted all, rank " + std::to_string(me.rank()) + " pid " + std::to_string(::getpid()));
  ready.reached[me.rank()]->set();
}

/// From here on nobody needs this worker any more, but for the end.
asio::awaitable<void> wait_for_others(worker& me) {
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    if (r != me.rank()) co_await me.peer(r).call<&until_ready>();
  }
}

asio::awaitable<void> main_(worker& me) {
  co_await greet_all(me);
  if (me.rank() == doer) {
    co_await wait_for_others(me);
    co_await do_it(me);
  }
  if (deed == "handler" || deed == "leave") {
    co_await me.peer(0).call<&wait_for_ever>(weft::within(1h));
  }
}

}  // namespace ending

int main(int argc, char** argv) {
  ending::deed = argc > 1 ? argv[1] : "work";
  if (ending::deed == "spin" || ending::deed == "stop") ending::doer = 2;
  if (ending::deed == "leave" || ending::deed == "handler") ending::doer = 1;
  weft::options o;
  o.workers = 3;
  o.shutdown_deadline = std::chrono::seconds(ending::deed == "work" ? 60 : 2);
  if (argc > 3) o.io_threads = static_cast<unsigned>(std::atoi(argv[3]));
  const int status = argc > 2 && argv[2] == std::string("inproc")
                         ? weft::run<weft::inproc>(ending::main_, o)
                         : weft::run<weft::unix_socket, weft::tcp>(ending::main_, o);
  ending::say("run returned " + std::to_string(status));
  return status;
}
