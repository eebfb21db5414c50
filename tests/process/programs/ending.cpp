// SPDX-License-Identifier: BSL-1.0
// What the tests of a run's end start: `ending <deed> [inproc]`, as three workers.
#include <weft/run.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <atomic>
#include <chrono>
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

constexpr int all_notes = 2000;
void slow_note() {
  std::this_thread::sleep_for(1ms);
  if (++done == all_notes) say("all notes are done");
}
void chain(worker& me, int left) {
  if (left == 0) return say("the chain has ended");
  me.peer((me.rank() + 1) % me.world_size()).post<&chain>(left - 1);
}
void stuck() {
  for (;;) std::this_thread::sleep_for(1s);
}
void note_and_throw() {
  say("a post that throws");
  throw std::runtime_error("unheard");
}
asio::awaitable<void> wait_for_ever() {
  const auto never = weft::make_ref<weft::event>();
  co_await weft::event::async_wait(never, asio::use_awaitable);
}
/// Set by the main of that rank: whatever blocks a pool waits until everybody has used it.
weft::ref<weft::event> greeted[] = {weft::make_ref<weft::event>(), weft::make_ref<weft::event>(),
                                    weft::make_ref<weft::event>()};
asio::awaitable<void> until_greeted(worker& me) {
  co_await weft::event::async_wait(greeted[me.rank()], asio::use_awaitable);
}
asio::awaitable<void> fail() {
  throw std::runtime_error("the handler is torn");
  co_return;
}
/// On the worker's own thread.
void spin() {
  for (;;) std::this_thread::sleep_for(1s);
}

asio::awaitable<void> main_(worker& me) {
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    static_cast<void>(co_await me.peer(r).call<&add>(1, 2));
  }
  greeted[me.rank()]->set();
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    co_await me.peer(r).call<&until_greeted>();
  }
  say("greeted all, rank " + std::to_string(me.rank()) + " pid " + std::to_string(::getpid()));
  if (deed == "posts" && me.rank() == 0) {
    for (int i = 0; i < all_notes; ++i) me.peer(1).post<&slow_note>();
  }
  if (deed == "chain" && me.rank() == 2) me.peer(0).post<&chain>(100);
  if (deed == "throwing" && me.rank() == 0) me.peer(1).post<&note_and_throw>();
  if (deed == "cut" && me.rank() == 0) me.peer(1).post<&wait_for_ever>();
  if (deed == "stuck" && me.rank() == 0) {
    std::cout << "not flushed";
    static_cast<void>(co_await me.peer(1).call<&stuck>(weft::within(100ms), weft::as_expected));
  }
  if (deed == "stuck-here" && me.rank() == 0) me.peer(0).post<&stuck>();
  if (deed == "spin" && me.rank() == 2) asio::post(me.context(), &spin);
  if (deed == "stop" && me.rank() == 2) {
    // When its main has returned, and said so.
    asio::post(me.context(), [] { ::raise(SIGSTOP); });
  }
  if (deed == "leave" && me.rank() == 1) std::exit(0);
  if (deed == "handler" && me.rank() == 1) {
    asio::co_spawn(me.context(), fail(), [](std::exception_ptr e) {
      if (e) std::rethrow_exception(e);
    });
  }
  if (deed == "handler" || deed == "leave") {
    co_await me.peer(0).call<&wait_for_ever>(weft::within(1h));
  }
}

}  // namespace ending

int main(int argc, char** argv) {
  ending::deed = argc > 1 ? argv[1] : "posts";
  weft::options o;
  o.workers = 3;
  o.shutdown_deadline = std::chrono::seconds(ending::deed == "posts" ? 60 : 2);
  if (argc > 3) o.io_threads = static_cast<unsigned>(std::atoi(argv[3]));
  const int status = argc > 2 && argv[2] == std::string("inproc")
                         ? weft::run<weft::inproc>(ending::main_, o)
                         : weft::run<weft::unix_socket, weft::tcp>(ending::main_, o);
  ending::say("run returned " + std::to_string(status));
  return status;
}
