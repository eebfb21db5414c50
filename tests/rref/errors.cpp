// SPDX-License-Identifier: BSL-1.0
// References that cannot be used, and what is said about it.
#include "objects.hpp"
#include <weft/rref/rref.hpp>
#include <weft/wire/tensor.hpp>

#include <ATen/ATen.h>

#include <core/error_of.hpp>
#include <string>
#include <vector>

namespace rref_tests {

struct cat {
  int lives = 9;
  int count() { return lives; }
};
at::Tensor multiply_misfits() { return at::matmul(at::ones({2, 3}), at::ones({2, 3})); }

struct dog {
  std::string name = "rex";
  int count() { return static_cast<int>(name.size()); }
};

/// Leaves as a reference to a cat, arrives as one to a dog: what a hostile peer can do.
struct disguise {
  static constexpr std::string_view weft_structure = "rref_tests::disguise 1";
  rref<cat> sent;
  rref<dog> received;
  friend void weft_encode(weft::writer& w, const disguise& d) { weft::encode(w, d.sent); }
  friend disguise weft_decode(weft::reader& r, std::type_identity<disguise>) {
    return {{}, weft::decode<rref<dog>>(r)};
  }
};
asio::awaitable<int> count_disguised(disguise d) {
  co_return co_await d.received.call<&dog::count>();
}
asio::awaitable<int> local_disguised(disguise d) { co_return d.received.local()->count(); }
int count_any(cat& c) { return c.lives; }

struct celsius {
  double degrees = 20;
};
struct volts {  // not a celsius, though it looks like one on the wire
  double value = 230;
};

std::string never() { throw std::logic_error("this is never made"); }
struct unmade {
  explicit unmade(int) { throw std::runtime_error("no such thing"); }
  int value() { return 0; }
};
asio::awaitable<int> use_it(rref<unmade> u) { co_return co_await u.call<&unmade::value>(); }
asio::awaitable<std::string> fetch_it(rref<std::string> s) { co_return co_await s.to_here(); }

/// At worker 2: what is met at references to worker 1's objects once that is lost.
struct witness {
  rref<probe> held;
  std::vector<weft::errc> seen;
  std::string named;
  std::string who() const { return named; }

  static weft::errc code(const weft::error& e) { return static_cast<weft::errc>(e.code().value()); }
  asio::awaitable<int> hold(rref<probe> p) {
    held = std::move(p);
    co_return co_await held.call<&probe::value>();
  }
  asio::awaitable<std::vector<weft::errc>> look(worker& me) {
    seen.clear();
    auto in_flight = held.start<&probe::slow>();
    co_await eventually([] { return door().arrived() == 1; });
    co_await lose_link(me, 1);
    seen.push_back(code(co_await thrown_by(in_flight.copy())));
    seen.push_back(code(co_await thrown_by(held.call<&probe::value>())));
    seen.push_back(code(co_await thrown_by(held.remote<&probe::spell>().to_here())));
    seen.push_back(code(co_await thrown_by(me.peer(1).make<probe>(1).call<&probe::value>())));
    const auto handed_on = co_await thrown_by(me.peer(0).call<&give>(held));
    seen.push_back(code(handed_on));
    // Who is lost is the owner, not whoever was to be called, who is well.
    named = handed_on.detail().peer;
    held = {};
    co_return seen;
  }
  static void give(rref<probe>) {}
};

namespace {

TEST_CASE("rref: an object of another type is refused by its owner") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    for (const int rank : {1, 0}) {  // over a link, and to oneself
      CAPTURE(rank);
      auto c = me.share(cat{});
      const auto called =
          co_await me.peer(rank).call<&count_disguised>(disguise{c, {}}, weft::as_expected);
      REQUIRE_FALSE(called);
      CHECK(called.error().message().find("an object of another type") != std::string::npos);
      CHECK(called.error().cause() == weft::errc::bad_arguments);
    }
    auto c = me.share(cat{});
    const auto local =
        co_await me.peer(0).call<&local_disguised>(disguise{c, {}}, weft::as_expected);
    CHECK(local.error().message().find("an object of another type") != std::string::npos);
    CHECK(co_await c.call<&count_any>() == 9);  // the worker serves on
    CHECK(all.rrefs(0).counters().refused == 0);
  });
}

TEST_CASE("rref: whoever uses what could not be made meets the error") {
  workers_everywhere(3, [](workers&, worker& me) -> asio::awaitable<void> {
    for (const int rank : {1, 0}) {
      CAPTURE(rank);
      auto s = me.peer(rank).remote<&never>();
      auto u = me.peer(rank).make<unmade>(1);
      const auto here = co_await s.to_here(weft::as_expected);
      REQUIRE_FALSE(here);
      CHECK(here.error() == weft::errc::remote_exception);
      CHECK(here.error().detail().text.find("this is never made") != std::string::npos);
      const auto called = co_await u.call<&unmade::value>(weft::as_expected);
      CHECK(called.error().message().find("no such thing") != std::string::npos);
      // Handed on, they say the same.
      const auto there = co_await me.peer(2).call<&fetch_it>(s, weft::as_expected);
      CHECK(there.error().message().find("this is never made") != std::string::npos);
      const auto used = co_await me.peer(2).call<&use_it>(u, weft::as_expected);
      CHECK(used.error().message().find("no such thing") != std::string::npos);
      // And what is made of them.
      const auto derived = co_await u.remote<&unmade::value>().to_here(weft::as_expected);
      CHECK(derived.error().message().find("no such thing") != std::string::npos);
    }
  });
}

TEST_CASE("rref: what is met at a reference is said once") {
  workers_everywhere(3, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto times = [](const std::string& text, const std::string& part) {
      int count = 0;
      for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++count;
      return count;
    };
    auto s = me.peer(1).remote<&never>();
    const auto here = co_await s.to_here(weft::as_expected);
    REQUIRE_FALSE(here);
    CAPTURE(here.error().message());
    CHECK(times(here.error().message(), "this is never made") == 1);
    CHECK(times(here.error().message(), "remote exception") == 1);
    const auto there = co_await me.peer(2).call<&fetch_it>(s, weft::as_expected);
    REQUIRE_FALSE(there);
    CAPTURE(there.error().message());
    CHECK(times(there.error().message(), "this is never made") == 1);
    CHECK(times(there.error().message(), "'rref_tests::fetch_it'") == 1);
  });
}

TEST_CASE("rref: classes of one structure are fetched apart") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto warm = me.peer(1).make<celsius>();
    const auto strong = me.peer(1).make<volts>();
    CHECK((co_await warm.to_here()).degrees == 20);
    CHECK((co_await strong.to_here()).value == 230);
  });
}

TEST_CASE("rref: an empty reference is refused in words") {
  run_workers(1, [](workers&, worker& me) -> asio::awaitable<void> {
    const rref<probe> empty;
    using weft::errc;
    CHECK(error_of([&] { static_cast<void>(empty.call<&probe::value>()); }) ==
          errc::invalid_argument);
    CHECK(error_of([&] { static_cast<void>(empty.start<&probe::value>()); }) ==
          errc::invalid_argument);
    CHECK(error_of([&] { static_cast<void>(empty.remote<&probe::value>()); }) ==
          errc::invalid_argument);
    CHECK(error_of([&] { static_cast<void>(empty.local()); }) == errc::invalid_argument);
    CHECK(error_of([&] { static_cast<void>(rref<int>().to_here()); }) == errc::invalid_argument);
    static_cast<void>(me);
    co_return;
  });
}

/// Without the worker that loses its link to another one, whose rank is odd, or even.
weft::options without(const char* role) {
  weft::options o = with_io_threads(1);
  o.on_loss = weft::loss_policy::go_on_without({role});
  return o;
}

TEST_CASE("rref: a lost owner is named, in calls under way and in later ones") {
  for (const auto how : {over::inproc, over::tcp}) {
    run_workers(3, how, without("odd"), [](workers& all, worker& me) -> asio::awaitable<void> {
      door().close();
      auto w = me.peer(2).make<witness>();
      auto p = me.peer(1).make<probe>(1);
      CHECK(co_await w.call<&witness::hold>(p) == 1);
      CHECK(co_await eventually([&] { return all.rrefs(1).counters().holders == 2; }));
      const auto seen = co_await w.call<&witness::look>();
      using weft::errc;
      REQUIRE(seen.size() == 5);
      CHECK(seen[0] == errc::rref_owner_died);
      CHECK(seen[1] == errc::rref_owner_died);
      CHECK(seen[2] == errc::rref_owner_died);
      CHECK(seen[3] == errc::rref_owner_died);
      CHECK(seen[4] == errc::rref_owner_died);
      CHECK(co_await w.call<&witness::who>() == "worker1");
      door().open();
      // The run goes on without the owner: it is lost to all.
      CHECK(co_await eventually([&] { return left_behind(all, 1); }));
      CHECK(co_await thrown_by(p.call<&probe::value>()) == errc::rref_owner_died);
    });
  }
}

TEST_CASE("rref: what a lost user alone held is destroyed, and its owner serves the others on") {
  for (const auto how : {over::inproc, over::tcp}) {
    run_workers(3, how, without("even"), [](workers& all, worker& me) -> asio::awaitable<void> {
      record::of_all().reset();
      auto w = me.peer(2).make<witness>();
      auto p = me.peer(1).make<probe>(1);
      const auto q = me.peer(1).make<probe>(2);
      CHECK(co_await w.call<&witness::hold>(p) == 1);
      p = {};
      CHECK(co_await eventually([&] { return all.rrefs(0).counters().imports == 2; }));  // w, q
      CHECK(record::of_all().destroyed == 0);
      CHECK(all.rrefs(1).counters().holders == 2);
      me.peer(2).post<&lose_link>(1u);
      CHECK(co_await eventually([] { return record::of_all().destroyed == 1; }));
      CHECK(co_await eventually([&] { return all.rrefs(1).counters().holders == 1; }));
      CHECK(co_await q.call<&probe::value>() == 2);
      CHECK(co_await eventually([&] { return left_behind(all, 2); }));
    });
  }
}

TEST_CASE("rref: what libtorch throws arrives without its stack frames") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto e = co_await thrown_by(me.peer(1).call<&multiply_misfits>());
    CHECK(e == weft::errc::remote_exception);
    CHECK(e.detail().text.find("mat1 and mat2 shapes cannot be multiplied") != std::string::npos);
    CHECK(e.detail().text.find("frame #") == std::string::npos);
    CHECK(e.detail().text.find("Exception raised from") == std::string::npos);
  });
}

}  // namespace
}  // namespace rref_tests
