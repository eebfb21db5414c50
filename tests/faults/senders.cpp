// SPDX-License-Identifier: BSL-1.0
// Every allocation of a sender fails once, and every burst of them: the caller has the error, and
// the next call works.
#include "points.hpp"
#include <weft/rpc/peer.hpp>

#include <exception>
#include <optional>
#include <rpc/cluster_bodies.hpp>
#include <string>
#include <utility>
#include <vector>

template class weft::testing::cluster_with<>;

namespace poor_senders {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::worker;

constexpr std::size_t large = 3000;  // more than a kept block
int length(std::string s) { return static_cast<int>(s.size()); }
asio::awaitable<int> length_later(std::string s) { co_return static_cast<int>(s.size()); }
int add(int a, int b) { return a + b; }

enum class way : std::uint8_t { start, start_later, post, spawn };
/// Sends under the shortage that its caller made; the future, if there is one.
std::optional<weft::future<int>> send(worker& me, way how, const std::string& text) {
  auto p = me.peer(1);
  switch (how) {
  case way::start:
    return p.start<&length>(text);
  case way::start_later:
    return p.start<&length_later>(text);
  case way::post:
    p.post<&length>(text);
    return std::nullopt;
  case way::spawn:
    return me.spawn(p.call<&length>(text));
  }
  return std::nullopt;
}

asio::awaitable<void> all_points(worker& me, way how, long further) {
  const std::string text(large, 'x');
  int failed = 0;
  bool struck = true;
  for (long n = 1; struck && n < 300; ++n) {
    CAPTURE(n);
    std::exception_ptr thrown;
    std::optional<weft::future<int>> started;
    {
      const shortage now(n, further);
      try {
        started = send(me, how, text);
      } catch (...) {
        thrown = std::current_exception();
      }
      struck = shortage::struck();
    }
    if (started) {
      try {
        const int got = co_await std::move(*started);  // outside of CHECK, which would catch
        CHECK(got == static_cast<int>(large));
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    if (thrown) {
      ++failed;
      CHECK(struck);
      CHECK(not_a_shortage(thrown) == "");
    }
    CHECK(co_await me.peer(1).call<&add>(20, 22) == 42);
    CHECK(calls_waiting(me, 1) == 0);
    CHECK(me.link_to(1).now() == weft::link::state::up);
  }
  CHECK_FALSE(struck);  // every point was met
  CHECK(failed > 0);
}

TEST_CASE("shortage: wherever memory lacks while a call is sent, the caller is told and goes on") {
  for (const over medium : {over::inproc, over::tcp}) {
    for (const unsigned io_threads : {0u, 1u}) {
      CAPTURE(name_of(medium));
      CAPTURE(io_threads);
      run_well(2, medium, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
        if (me.rank() != 0) co_return;
        CHECK(co_await me.peer(1).call<&add>(1, 2) == 3);
        for (const way how : {way::start, way::start_later, way::post, way::spawn}) {
          CAPTURE(static_cast<int>(how));
          for (const long further : {0L, 40L, all_of_them}) {
            CAPTURE(further);
            co_await all_points(me, how, further);
          }
        }
      });
    }
  }
}

/// The pool's thread runs out while a result is sent. (On a thread that reads, what comes behind
/// the reply would run out too, in Asio's hands.)
std::string result(int n, int further) {
  std::string text(large, 'y');
  if (n > 0) shortage::arm(n, further);
  return text;
}
bool disarm() {
  const bool struck = shortage::struck();
  shortage::disarm();
  return struck;
}
template <auto Function, auto Disarm>
asio::awaitable<void> all_replies(weft::peer p, int further) {
  int failed = 0;
  bool struck = true;
  for (int n = 1; struck && n < 60; ++n) {
    CAPTURE(n);
    const auto got = co_await p.call<Function>(n, further, weft::within(20s), weft::as_expected);
    if (got) {
      CHECK(got->size() == large);
    } else {
      ++failed;
      INFO(got.error().message());
      CHECK((got.error() == errc::resource_exhausted || got.error() == errc::remote_exception));
    }
    struck = co_await p.call<Disarm>();
    CHECK(co_await p.call<&add>(20, 22) == 42);
  }
  CHECK(failed > 0);
}

TEST_CASE("shortage: wherever memory lacks while a result is sent, the caller hears of it") {
  for (const unsigned io_threads : {0u, 1u}) {
    CAPTURE(io_threads);
    run_well(2, over::tcp, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const auto p = me.peer(1);
      for (const int further : {0, 40}) {
        CAPTURE(further);
        co_await all_replies<&result, &disarm>(p, further);
      }
    });
  }
}

}  // namespace poor_senders
