// SPDX-License-Identifier: BSL-1.0
// What the process tests start: `party <deed>`, as three workers unless a launcher started it.
#include <weft/engine/link/hmac.hpp>
#include <weft/run.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <chrono>
#include <core/for_ever.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <system_error>

#include <signal.h>
#include <unistd.h>

namespace party {

using namespace std::chrono_literals;
using weft::worker;

std::string deed;

int add(int a, int b) { return a + b; }
int process() { return ::getpid(); }
asio::awaitable<void> wait_for_ever() { co_await weft::testing::for_ever(); }

asio::awaitable<void> greet_all(worker& me) {
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    const int three = co_await me.peer(r).call<&add>(1, 2);
    if (three != 3) throw std::runtime_error("1 + 2 is not " + std::to_string(three));
  }
  // One write per line, so that lines of several processes do not mix.
  std::cout << "rank " + std::to_string(me.rank()) + " of " + std::to_string(me.world_size()) +
                   " greeted all, pid " + std::to_string(::getpid()) + "\n"
            << std::flush;
}

/// A process that outlives this one and keeps its output open.
void leave_a_child() {
  std::cout << "the last word" << std::flush;
  if (const pid_t left = ::fork(); left != 0) {
    std::cout << ", but for pid " + std::to_string(left) << std::flush;
    return;
  }
  ::alarm(600);  // should nobody end it
  ::pause();
  ::_exit(0);
}

/// A bar that is redrawn for ever, on one line.
void draw_bar() {
  std::string step(10'000, '#');
  for (int i = 0; i < 1000; ++i) {
    std::cout << '\r' + std::to_string(i) + step << std::flush;
  }
  std::cout << "\rdone\n" << std::flush;
}
/// Stops this process when its run is over.
struct stopper {
  ~stopper() { ::raise(SIGSTOP); }
};
void stop_after_the_run() { static const stopper at_exit; }
/// Proves, as a link's thread may, after everything that was registered later has run at exit.
struct late_proof {
  ~late_proof() {
    if (weft::engine::hmac_sha256("token", "greeting") != before) ::_exit(9);
  }
  std::string before;
};
void prove_at_exit() {
  static late_proof at_exit;
  at_exit.before = weft::engine::hmac_sha256("token", "greeting");
}

/// Names and roles of three workers: none, bytes that no encoding has, and a long one.
std::string odd_text(std::uint32_t which) {
  using namespace std::string_literals;
  return which == 0 ? ""s : which == 1 ? "r\xff\n\"'\\\0 {}\r\xc3"s : std::string(64 * 1024, 'n');
}
void check_names(worker& me) {
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    const weft::member& m = me.members().members[r];
    if (m.name != odd_text(r) || m.role != odd_text((r + 1) % 3)) {
      throw std::runtime_error("the name or role of rank " + std::to_string(r) + " is another one");
    }
    if (me.peer(odd_text(r)).rank() != r) throw std::runtime_error("a name is not found");
  }
}

/// Joins on a loop that does other things meanwhile.
int join_beside_ticks(const weft::options& o) {
  asio::io_context io;
  int ticks = 0;
  asio::steady_timer timer(io);
  std::function<void()> tick = [&] {
    timer.expires_after(10ms);
    timer.async_wait([&](std::error_code ec) {
      if (ec) return;
      ++ticks;
      tick();
    });
  };
  tick();
  int status = 0;
  asio::co_spawn(
      io,
      [](asio::io_context& its, weft::options given) -> asio::awaitable<void> {
        weft::owned_worker me = co_await weft::join<weft::unix_socket, weft::tcp>(its, given);
        me.leave();
      }(io, o),
      [&](std::exception_ptr failed) {
        timer.cancel();
        if (!failed) return;
        status = 1;
        try {
          std::rethrow_exception(failed);
        } catch (const weft::rpc_error& e) {
          std::cout << std::string("rpc_error: ") + e.what() + "\n";
        } catch (const std::exception& e) {
          std::cout << std::string("exception: ") + e.what() + "\n";
        }
      });
  io.run();
  std::cout << "ticks " + std::to_string(ticks) + "\n" << std::flush;
  return status;
}

asio::awaitable<void> main_(worker& me) {
  if (deed == "names" || deed == "names-of-threads") check_names(me);
  if (deed == "second") co_await me.peer(1).call<&add>(1, 2);
  if (deed == "serve" && me.rank() == 0) co_return;  // who calls whom first is settled
  co_await greet_all(me);
  const std::uint32_t last = me.world_size() - 1;
  if (deed == "greet" || deed == "serve" || deed.starts_with("names")) co_return;
  if (deed == "introduce") {
    std::string members = "members";
    for (std::uint32_t r = 0; r < me.world_size(); ++r) {
      members += " " + std::to_string(co_await me.peer(r).call<&process>());
    }
    std::cout << members + "\n" << std::flush;
    co_return;
  }
  if (deed == "leave" && me.rank() == 1) leave_a_child();
  if (deed == "leave") co_return;
  if (deed == "die" && me.rank() == last) ::raise(SIGKILL);
  if (deed == "last-word" && me.rank() == last) {
    std::cout << "a line by C++, ";
    std::printf("one by C\n");
    std::cout << "and another\n";
    ::raise(SIGKILL);
  }
  if (deed == "die-first" && me.rank() == 0) ::raise(SIGKILL);
  if (deed == "exit" && me.rank() == last) ::_exit(7);
  if (deed == "exit-well" && me.rank() == 1) std::exit(0);
  if (deed == "bar" && me.rank() == 1) draw_bar();
  if (deed == "bar") co_return;
  if (deed == "stop" && me.rank() == 1) stop_after_the_run();
  if (deed == "stop") co_return;
  if (deed == "freeze" && me.rank() == 1) ::raise(SIGSTOP);
  if (deed == "throw" && me.rank() == 1) throw std::runtime_error("the data are gone");
  if (deed == "return" && me.rank() == 1) co_return;  // the others wait for it all the same
  co_await me.peer((me.rank() + 1) % me.world_size()).call<&wait_for_ever>(weft::within(1h));
}

}  // namespace party

int main(int argc, char** argv) {
  party::deed = argc > 1 ? argv[1] : "greet";
  weft::options o;
  o.workers = 3;
  o.rendezvous_deadline = std::chrono::seconds(argc > 2 ? std::stoi(argv[2]) : 60);
  if (party::deed == "freeze") o.lost_after = std::chrono::seconds(4);
  if (party::deed == "stop") o.shutdown_deadline = std::chrono::seconds(1);
  const char* const given = std::getenv("RANK");  // NOLINT: before there are threads
  const std::string rank = given ? given : "";
  if (party::deed.starts_with("absent-") && party::deed.substr(7) == rank) {
    ::raise(SIGKILL);  // before it meets anybody
  }
  if (party::deed == "not-there" && rank == "1") return 0;
  if (party::deed == "prove-at-exit") {
    party::prove_at_exit();
    return 0;
  }
  if (party::deed == "twins") o.name = "twin";
  if (party::deed.starts_with("names")) {
    o.name = [](std::uint32_t r, std::uint32_t) { return party::odd_text(r); };
    o.role = [](std::uint32_t r, std::uint32_t) { return party::odd_text((r + 1) % 3); };
  }
  if (party::deed == "names-of-threads") return weft::run<weft::inproc>(party::main_, o);
  if (party::deed == "last-word-joined") {
    if (!weft::placement_from_environment()) return weft::launch_local(o);
    std::puts("before");
    weft::owned_worker me = weft::join_blocking<weft::unix_socket, weft::tcp>(o);
    if (me->rank() == 2) {
      std::puts("a line by C");
      ::raise(SIGKILL);
    }
    me.leave();
    return me.run() ? 1 : 0;
  }
  const auto began = std::chrono::steady_clock::now();
  const int status = party::deed == "join"
                         ? party::join_beside_ticks(o)
                         : weft::run<weft::unix_socket, weft::tcp>(party::main_, o);
  const auto took =
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  if (status != 0) std::cout << "the run took " + std::to_string(took.count()) + " ms\n";
  return status;
}
