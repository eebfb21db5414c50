// SPDX-License-Identifier: BSL-1.0
// Memory lacks for what a message carries: that message fails, at whoever has none for it, and the
// next one does not. (For weft's own small objects: tests/process/out_of_memory.cpp.)
#include "boxes.hpp"
#include "shortage.hpp"
#include <weft/rpc/peer.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <rpc/cluster_bodies.hpp>
#include <string>
#include <utility>
#include <vector>

template class weft::testing::cluster_with<>;

namespace large_messages {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::call_progress;
using weft::errc;
using weft::rref;
using weft::worker;

constexpr std::size_t large = 300'000;
constexpr std::size_t lacking = 100'000;  // from here on there is no memory

// Workers are threads of this process, so that a thread's memory can be named by its address.
std::uint64_t address_here() { return reinterpret_cast<std::uintptr_t>(&thread_memory::here()); }
weft::immediate<std::uint64_t> of_reader() { return address_here(); }
asio::awaitable<std::uint64_t> of_worker() { co_return address_here(); }
std::uint64_t of_pool() { return address_here(); }
thread_memory& at(std::uint64_t address) {
  return *reinterpret_cast<thread_memory*>(static_cast<std::uintptr_t>(address));
}

int plain(std::string s) { return static_cast<int>(s.size()); }
weft::immediate<int> here(std::string s) { return static_cast<int>(s.size()); }
asio::awaitable<int> later(std::string s) { co_return static_cast<int>(s.size()); }
int add(int a, int b) { return a + b; }
std::string kept;
void keep(std::string s) { kept = std::move(s); }
/// Has its memory already, as has what comes here of it.
std::string kept_text() { return std::move(kept); }

shelf taken;  // on the worker's thread
asio::awaitable<void> take(std::string, std::vector<rref<box>> boxes) {
  taken.boxes = std::move(boxes);
  co_return;
}

/// What a call with a large argument ended with, for each way of calling.
template <auto F>
asio::awaitable<weft::error> call(worker& me, const std::string& text) {
  const auto got = co_await me.peer(1).call<F>(text, weft::within(20s), weft::as_expected);
  if (got) CHECK(*got == static_cast<int>(text.size()));
  co_return got ? weft::error() : got.error();
}

asio::awaitable<void> check_next(worker& me) {
  CHECK(co_await me.peer(1).call<&plain>(std::string(large, 'y')) == static_cast<int>(large));
  CHECK(calls_waiting(me, 1) == 0);
  CHECK(me.link_to(1).current_state() == weft::link::state::up);
}

void on_each(void (*run)(over, unsigned)) {
  for (const over medium : {over::tcp, over::inproc}) {
    for (const unsigned io_threads : {0u, 1u}) {  // by default either thread may be the reader
      CAPTURE(name_of(medium));
      CAPTURE(io_threads);
      run(medium, io_threads);
    }
  }
}

TEST_CASE("large: a caller without memory for the arguments is told, and nothing was sent") {
  on_each([](over medium, unsigned io_threads) {
    run_well(2, medium, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const std::string text(large, 'x');
      std::vector<weft::error> ends;
      // The frame of a call takes a copy of its arguments from its caller.
      auto arguments = std::vector<std::string>(3, text);
      auto awaited = me.peer(1).call<&plain>(std::move(arguments[0]), weft::as_expected);
      thread_memory::here().lack(lacking);
      try {
        me.peer(1).post<&plain>(text);
      } catch (const weft::rpc_error& e) {
        ends.push_back(e.error());
      } catch (const std::bad_alloc&) {  // of the copy
        ends.emplace_back(errc::resource_exhausted, "", call_progress::not_sent);
      }
      auto started = me.peer(1).start<&later>(std::move(arguments[1]));
      const auto got = co_await std::move(awaited);
      CHECK(thread_memory::here().suffice() >= 3);
      if (!got) ends.push_back(got.error());
      try {
        static_cast<void>(co_await std::move(started));
      } catch (const weft::rpc_error& e) {
        ends.push_back(e.error());
      }
      CHECK(ends.size() == 3);
      for (const weft::error& e : ends) {
        INFO(e.message());
        CHECK(e == errc::resource_exhausted);
        CHECK(e.ran() == call_progress::not_sent);
      }
      co_await check_next(me);
    });
  });
}

TEST_CASE("large: a callee without memory for a request refuses it alone") {
  on_each([](over medium, unsigned io_threads) {
    run_well(2, medium, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const std::uint64_t reader = co_await me.peer(1).call<&of_reader>();
      const std::uint64_t home = co_await me.peer(1).call<&of_worker>();
      const std::uint64_t pool = co_await me.peer(1).call<&of_pool>();
      const std::string text(large, 'x');
      for (const std::uint64_t poor : {reader, home, pool}) {
        CAPTURE(poor == home);
        CAPTURE(poor == pool);
        at(poor).lack(lacking);
        int refused = 0;
        for (const weft::error& e :
             {co_await call<&plain>(me, text), co_await call<&here>(me, text),
              co_await call<&later>(me, text)}) {
          if (!e) continue;
          ++refused;
          INFO(e.message());
          CHECK(e == errc::resource_exhausted);
          CHECK(e.ran() == call_progress::not_executed);
        }
        CHECK(at(poor).suffice() >= refused);
        CHECK(refused >= 1);
        co_await check_next(me);
      }
    });
  });
}

TEST_CASE("large: whoever has no memory for a result says so, and that the function ran") {
  on_each([](over medium, unsigned io_threads) {
    run_well(2, medium, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const std::uint64_t pool = co_await me.peer(1).call<&of_pool>();
      const std::uint64_t mine = address_here();
      for (const std::uint64_t poor : {pool, mine}) {
        CAPTURE(poor == mine);
        co_await me.peer(1).call<&keep>(std::string(large, 'z'));
        at(poor).lack(lacking);
        const auto got = co_await me.peer(1).call<&kept_text>(weft::within(20s), weft::as_expected);
        CHECK(at(poor).suffice() >= 1);
        REQUIRE_FALSE(got);
        INFO(got.error().message());
        CHECK(got.error() == errc::resource_exhausted);
        CHECK(got.error().ran() == call_progress::executed);
        co_await check_next(me);
      }
    });
  });
}

TEST_CASE("large: the references of a message that is refused are counted all the same") {
  on_each([](over medium, unsigned io_threads) {
    const bool moves = medium == over::inproc;  // frames: the reader takes no memory for one
    run_pure(
        2, medium, io_threads, [moves](pure_cluster& all, worker& me) -> asio::awaitable<void> {
          const std::uint64_t reader = co_await me.peer(1).call<&of_reader>();
          const std::uint64_t home = co_await me.peer(1).call<&of_worker>();
          for (const std::uint64_t poor : {reader, home}) {
            CAPTURE(poor == home);
            if (moves && poor != home) continue;
            {
              const std::vector<rref<box>> boxes{me.share(box{"a"}), me.peer(1).make<box>("b")};
              CHECK(co_await boxes[1].call<&box::size>() == 1);
              const std::string text(large, 'x');
              at(poor).lack(lacking);
              const auto got = co_await me.peer(1).call<&take>(text, boxes, weft::within(20s),
                                                               weft::as_expected);
              CHECK(at(poor).suffice() >= 1);
              REQUIRE_FALSE(got);
              INFO(got.error().message());
              CHECK(got.error() == errc::resource_exhausted);
            }
            CHECK(co_await all_is_well(all, me));
          }
        });
  });
}

std::string of_no_memory() { throw std::bad_alloc(); }
asio::awaitable<std::string> of_no_memory_later() {
  throw std::bad_alloc();
  co_return "";
}
weft::immediate<std::string> of_no_memory_here() { throw std::bad_alloc(); }

TEST_CASE("large: a function that throws bad_alloc gives resource_exhausted, and it ran") {
  run_pure(2, over::tcp, 1, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    for (const std::uint32_t rank : {1u, 0u}) {
      const auto p = me.peer(rank);
      for (const auto& got : {co_await p.call<&of_no_memory>(weft::as_expected),
                              co_await p.call<&of_no_memory_later>(weft::as_expected),
                              co_await p.call<&of_no_memory_here>(weft::as_expected)}) {
        REQUIRE_FALSE(got);
        INFO(got.error().message());
        CHECK(got.error() == errc::resource_exhausted);
        CHECK(got.error().ran() == call_progress::executed);
        CHECK(got.error().detail().from == weft::origin::remote_user);
      }
    }
  });
}

}  // namespace large_messages
