// SPDX-License-Identifier: BSL-1.0
// A worker of three that lacks memory once: `out_of_memory <own|joined> <first> <step> <last>`.
// For each n of first, first + step, ... last, three processes, of which rank 1 gets nothing for
// its n-th allocation since its main began, whatever thread makes it. Its main catches everything.
// What is then to be seen is checked here; says "well" at the end, or what is wrong.
#include <weft/run.hpp>

#include <atomic>
#include <chrono>
#include <core/own_operator_new.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace out_of_memory {

using namespace std::chrono_literals;
using weft::errc;
using weft::worker;

/// Of the three processes of one n.
struct shared {
  std::atomic<int> struck{0};      // an allocation of rank 1 failed
  std::atomic<int> caught{0};      // rank 1's main, or its loop, caught something
  std::atomic<int> mains{0};       // so many mains have returned
  std::atomic<int> heard[3] = {};  // by each rank's main: the code of the first error of a call
};
shared* all = nullptr;

std::atomic<long> left{0};  // until one fails; 0: none will

bool fails() noexcept {
  long now = left.load(std::memory_order_relaxed);
  // bounded: each turn another thread has counted one down
  while (now > 0 && !left.compare_exchange_weak(now, now - 1)) {
  }
  if (now != 1) return false;
  all->struck.store(1);
  return true;
}

int add(int a, int b) { return a + b; }
weft::immediate<int> add_here(int a, int b) { return a + b; }
asio::awaitable<int> add_later(int a, int b) { co_return a + b; }
struct counter {
  int n = 0;
  int raise(int by) { return n += by; }
};

/// Each way of a call once, to both others.
asio::awaitable<void> use(worker& me, std::uint32_t other) {
  const auto p = me.peer(other);
  const auto soon = weft::within(20s);
  int sum = co_await p.call<&add>(1, 2, soon) + co_await p.call<&add_here>(3, 4, soon) +
            co_await p.call<&add_later>(5, 6, soon);
  weft::future<int> started = p.start<&add_later>(7, 8, soon);
  sum += co_await std::move(started);
  p.post<&add>(1, 1);
  const auto r = p.make<counter>();
  sum += co_await r.call<&counter::raise>(9, soon);
  if (sum != 45) throw std::runtime_error("a sum is wrong");
}

/// The others' part: they use rank 1 a few times, or until it is lost.
asio::awaitable<void> others(worker& me) {
  for (int i = 0; i < 4; ++i) {
    try {
      co_await use(me, 1);
    } catch (const weft::rpc_error& e) {
      if (e.error() == errc::resource_exhausted) {  // of what it did for that call
        all->caught.store(1);
        continue;
      }
      all->heard[me.rank()].store(e.error().code().value());
      throw;
    }
  }
  ++all->mains;
}

asio::awaitable<void> poor(worker& me, long n) {
  for (const std::uint32_t other : {0u, 2u}) co_await use(me, other);  // they have met
  left.store(n);
  for (int i = 0; i < 3; ++i) {
    for (const std::uint32_t other : {0u, 2u}) {
      try {
        co_await use(me, other);
      } catch (...) {
        all->caught.store(1);
      }
    }
  }
  ++all->mains;
}

asio::awaitable<void> main_of(worker& me, long n) {
  if (me.rank() == 1) return poor(me, n);
  return others(me);
}

asio::awaitable<void> joined_main(asio::io_context& io, weft::options o, long n) {
  weft::owned_worker me = co_await weft::join<weft::unix_socket>(io, o);
  co_await poor(*me, n);
  me.leave();
  try {
    if (const weft::error why = co_await me.ended()) std::_Exit(3);
  } catch (...) {
    all->caught.store(1);
  }
}

int play(int rank, bool joined, long n) {
  weft::options o;
  o.call_deadline = 30s;
  o.shutdown_deadline = 30s;
  const std::string text = std::to_string(rank);
  ::setenv("RANK", text.c_str(), 1);
  ::setenv("WORLD_SIZE", "3", 1);
  const std::string run = "out-of-memory-" + std::to_string(::getppid()) + "-" + std::to_string(n);
  o.run_id = run;
  if (rank != 1 || !joined) {
    return weft::run<weft::unix_socket>([n](worker& me) { return main_of(me, n); }, o);
  }
  asio::io_context io;
  asio::co_spawn(io, joined_main(io, o, n), asio::detached);
  for (bool over = false; !over;) {  // bounded: by the run, whose deadlines end it
    try {
      io.run();
      over = true;
    } catch (...) {
      all->caught.store(1);
    }
  }
  return 0;
}

/// Empty, or what is wrong.
std::string attempt(bool joined, long n, int& ended) {
  all->struck = 0;
  all->caught = 0;
  all->mains = 0;
  for (auto& h : all->heard) h = 0;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  pid_t pids[3];
  for (int rank = 0; rank < 3; ++rank) {
    pids[rank] = ::fork();
    if (pids[rank] != 0) continue;
    ::alarm(60);  // one that hangs is killed by it, and that is seen
    const int quiet = ::open("/dev/null", O_WRONLY);
    ::dup2(rank == 1 ? ends[1] : quiet, STDERR_FILENO);
    ::dup2(quiet, STDOUT_FILENO);
    std::_Exit(play(rank, joined, n));
  }
  ::close(ends[1]);
  std::string words;
  char chunk[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], chunk, sizeof chunk)) > 0;) {  // bounded: alarm
    words.append(chunk, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status[3];
  for (int rank = 0; rank < 3; ++rank) {
    int raw = 0;
    ::waitpid(pids[rank], &raw, 0);
    status[rank] = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
  }
  const std::string sentence = "out of memory";
  const auto at = words.find(sentence);
  const bool said = at != std::string::npos;
  const std::string seen =
      " (statuses " + std::to_string(status[0]) + " " + std::to_string(status[1]) + " " +
      std::to_string(status[2]) + ", struck " + std::to_string(all->struck) + ", caught " +
      std::to_string(all->caught) + ", heard " + std::to_string(all->heard[0]) + " " +
      std::to_string(all->heard[2]) + "; rank 1 said: " + words + ")";
  if (said && words.find(sentence, at + 1) != std::string::npos) return "said twice" + seen;
  if (said) {
    ++ended;
    if (!all->struck) return "said for nothing" + seen;
    // Once all mains have returned, the worker may be gone.
    if (all->mains < 3 && words.find("worker1") == std::string::npos) return "no name" + seen;
    if (status[1] == 0) return "rank 1 ended well" + seen;
    // Once all mains have returned, the run may have ended for the others.
    if (all->mains < 3 && (status[0] == 0 || status[2] == 0)) {
      return "the others did not miss rank 1" + seen;
    }
    for (const int rank : {0, 2}) {
      const int heard = all->heard[rank];
      if (heard != 0 && heard != static_cast<int>(errc::peer_died) &&
          heard != static_cast<int>(errc::rref_owner_died)) {
        return "the others heard something else" + seen;
      }
    }
    return {};
  }
  // Asio ends a coroutine by a dispatch, whose want of memory is what a handler throws: the run ends
  // by it, in these words.
  if (words.find("a handler threw: std::bad_alloc") != std::string::npos) {
    if (status[1] == 0) return "rank 1 ended well" + seen;
    if (all->mains < 3 && (status[0] == 0 || status[2] == 0)) {
      return "the others did not hear of it" + seen;
    }
    return {};
  }
  // Asio destroys coroutines by a post, which ends a process that has no memory for it.
  if (status[1] == 128 + SIGABRT && all->mains == 3) return {};
  // It was the error of a call, or of a post, after which all goes on.
  const bool told = all->caught || words.find("a post of ") != std::string::npos;
  if (all->struck && !told) return "nobody was told" + seen;
  if (status[0] != 0 || status[1] != 0 || status[2] != 0) return "the run failed" + seen;
  return {};
}

}  // namespace out_of_memory

bool weft::testing::allocation_fails(std::size_t) noexcept { return out_of_memory::fails(); }

int main(int argc, char** argv) {
  using namespace out_of_memory;
  if (argc != 5) return 2;
  const bool joined = argv[1] == std::string("joined");
  void* const page =
      ::mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 2;
  all = new (page) shared;
  int ended = 0;
  int wrong = 0;
  for (long n = std::stol(argv[2]); n <= std::stol(argv[4]); n += std::stol(argv[3])) {
    const std::string why = attempt(joined, n, ended);
    if (why.empty()) continue;
    ++wrong;
    std::cout << "n = " + std::to_string(n) + ": " + why + "\n" << std::flush;
  }
  std::cout << std::string("in all: ") + std::to_string(ended) + " times the process ended\n";
  if (wrong == 0) std::cout << "well\n";
  return wrong == 0 ? 0 : 1;
}
