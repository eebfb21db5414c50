// SPDX-License-Identifier: BSL-1.0
// User code that throws while references are made, used and fetched: the error is met in its own
// words, nothing is left in the ledgers, and the next call works.
#include "pure.hpp"

#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace rref_faults {

using namespace weft::testing;
using weft::errc;
using weft::rref;
using weft::worker;

/// Not a std::exception.
struct own_kind {};

enum class thrown : std::uint8_t { runtime_error, bad_alloc, own_kind, rpc_error };
enum class point : std::uint8_t { none, convert, encode, decode, construct, copy, move };

[[noreturn]] void raise(thrown what) {
  switch (what) {
  case thrown::runtime_error:
    throw std::runtime_error("words of the user");
  case thrown::bad_alloc:
    throw std::bad_alloc();
  case thrown::own_kind:
    throw own_kind();
  case thrown::rpc_error:
    // Its thrower may say what he likes of how far the call got.
    throw weft::rpc_error(errc::remote_exception, "words of the user",
                          weft::call_progress::executed);
  }
  std::abort();
}
/// What each of them is called, wherever it is met.
std::string_view words_of(thrown what) {
  switch (what) {
  case thrown::bad_alloc:
    return "bad_alloc";
  case thrown::own_kind:
    return "not a std::exception";
  default:
    return "words of the user";
  }
}

/// Throws at one point of its life; which one travels with it.
struct touchy {
  point at = point::none;
  thrown what = thrown::runtime_error;
  int value = 0;

  touchy() = default;
  touchy(point p, thrown w) : at(p), what(w) {}
  explicit touchy(touchy&& t, int v) : touchy(std::move(t)) {
    value = v;
    reach(point::construct);
  }
  touchy(const touchy& o) : at(o.at), what(o.what), value(o.value) { reach(point::copy); }
  touchy(touchy&& o) : at(o.at), what(o.what), value(o.value) { reach(point::move); }
  touchy& operator=(touchy&&) = default;

  void reach(point here) const {
    if (at == here) raise(what);
  }
  int get() { return value; }
  asio::awaitable<int> get_later() { co_return value; }

  static constexpr std::string_view weft_structure = "rref_faults::touchy 1";
  friend void weft_encode(weft::writer& w, const touchy& t) {
    weft::encode(w, static_cast<std::uint8_t>(t.at));
    weft::encode(w, static_cast<std::uint8_t>(t.what));
    weft::encode(w, t.value);
    t.reach(point::encode);
  }
  friend touchy weft_decode(weft::reader& r, std::type_identity<touchy>) {
    touchy t;
    t.at = static_cast<point>(weft::decode<std::uint8_t>(r));
    t.what = static_cast<thrown>(weft::decode<std::uint8_t>(r));
    t.value = weft::decode<int>(r);
    t.reach(point::decode);
    return t;
  }
};

/// An argument that becomes a touchy when it is converted for a call.
struct rough {
  thrown what;
  operator touchy() const { raise(what); }
};

/// Turns its argument into an object that throws at another point later.
touchy prepared(std::uint8_t at, std::uint8_t what) {
  touchy t;
  t.at = static_cast<point>(at);
  t.what = static_cast<thrown>(what);
  return t;
}
int with_references(std::vector<rref<touchy>> many, touchy) {
  return static_cast<int>(many.size());
}
int take(touchy t) { return t.value; }

/// What a use says of the failure, whatever its type.
template <class T>
asio::awaitable<std::string> said_by(asio::awaitable<T> use) {
  try {
    static_cast<void>(co_await std::move(use));
  } catch (const std::exception& e) {
    co_return e.what();
  } catch (const own_kind&) {
    co_return "not a std::exception";
  }
  co_return "";
}
bool says(const std::string& text, thrown what) {
  return text.find(words_of(what)) != std::string::npos;
}

/// Nothing is in the books, nothing waits, and the next call works.
asio::awaitable<void> check_whole(pure_cluster& all, worker& me, int rank) {
  auto next = me.peer(rank).make<touchy>(touchy(), 7);
  CHECK(co_await next.call<&touchy::get>() == 7);
  CHECK(co_await next.call<&touchy::get_later>() == 7);
  CHECK((co_await next.to_here()).value == 7);
  next = {};
  CHECK(co_await nothing_is_left(all));
  for (std::uint32_t r = 0; r < all.size(); ++r) {
    INFO(rrefs(all, r).describe());
    const auto now = rrefs(all, r).counters();
    CHECK(now.pins == 0);
    CHECK(now.promised == 0);
    CHECK(now.waiting == 0);
    CHECK(now.created == now.released);
    CHECK(now.refused == 0);
  }
}

constexpr thrown kinds[] = {thrown::runtime_error, thrown::bad_alloc, thrown::own_kind,
                            thrown::rpc_error};

void with_each(const std::function<asio::awaitable<void>(pure_cluster&, worker&, int, thrown)>& f) {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    run_pure(2, how, io_threads, [&f](pure_cluster& all, worker& me) -> asio::awaitable<void> {
      for (const int rank : {1, 0}) {
        for (const thrown what : kinds) {
          INFO("rank ", rank, ", kind ", static_cast<int>(what));
          co_await f(all, me, rank, what);
          co_await check_whole(all, me, rank);
        }
      }
    });
  }
}

namespace {

TEST_CASE("faults: an argument that cannot be converted is refused where make is called") {
  with_each([](pure_cluster&, worker& me, int rank, thrown what) -> asio::awaitable<void> {
    std::string said;
    try {
      static_cast<void>(me.peer(rank).remote<&take>(rough{what}));
    } catch (const std::exception& e) {
      said = e.what();
    } catch (const own_kind&) {
      said = "not a std::exception";
    }
    CHECK(says(said, what));
    co_return;
  });
}

TEST_CASE("faults: arguments that cannot be encoded reach whoever uses the reference") {
  with_each([](pure_cluster& all, worker& me, int rank, thrown what) -> asio::awaitable<void> {
    auto made = me.peer(rank).make<touchy>(touchy(point::encode, what), 1);
    auto kept = me.peer(rank).remote<&take>(touchy(point::encode, what));
    CHECK(says(co_await said_by(made.call<&touchy::get>()), what));
    CHECK(says(co_await said_by(made.call<&touchy::get_later>()), what));
    CHECK(says(co_await said_by(made.to_here()), what));
    CHECK(says(co_await said_by(kept.to_here()), what));
    // And what is made of them.
    CHECK(says(co_await said_by(made.remote<&touchy::get>().to_here()), what));
    CHECK(waiting(all, 0) + waiting(all, 1) == 0);
  });
}

TEST_CASE("faults: arguments that cannot be decoded, and constructors that throw") {
  with_each([](pure_cluster&, worker& me, int rank, thrown what) -> asio::awaitable<void> {
    for (const point at : {point::decode, point::construct}) {
      auto made = me.peer(rank).make<touchy>(touchy(at, what), 1);
      CHECK(says(co_await said_by(made.call<&touchy::get>()), what));
      CHECK(says(co_await said_by(made.call<&touchy::get_later>()), what));
      CHECK(says(co_await said_by(made.to_here()), what));
    }
  });
}

TEST_CASE("faults: an object whose copy, coding or move throws is met by to_here") {
  with_each([](pure_cluster&, worker& me, int rank, thrown what) -> asio::awaitable<void> {
    for (const point at : {point::copy, point::encode, point::decode}) {
      auto kept = me.peer(rank).remote<&prepared>(static_cast<std::uint8_t>(at),
                                                  static_cast<std::uint8_t>(what));
      CHECK(co_await kept.call<&touchy::get>() == 0);
      CHECK(says(co_await said_by(kept.to_here()), what));
      CHECK(co_await kept.call<&touchy::get>() == 0);  // the object lives on
    }
  });
}

TEST_CASE("faults: share throws what moving its value throws") {
  with_each([](pure_cluster&, worker& me, int, thrown what) -> asio::awaitable<void> {
    touchy t;
    t.what = what;
    std::string said;
    try {
      t.at = point::copy;
      static_cast<void>(me.share<touchy>(t));
    } catch (const std::exception& e) {
      said = e.what();
    } catch (const own_kind&) {
      said = "not a std::exception";
    }
    CHECK(says(said, what));
    co_return;
  });
}

TEST_CASE("faults: references beside an argument that cannot be encoded are not pinned") {
  with_each([](pure_cluster& all, worker& me, int rank, thrown what) -> asio::awaitable<void> {
    std::vector<rref<touchy>> many{me.share(touchy()), me.peer(1).make<touchy>(touchy(), 1)};
    CHECK(says(
        co_await said_by(me.peer(rank).call<&with_references>(many, touchy(point::encode, what))),
        what));
    CHECK(rrefs(all, 0).counters().pins == 0);
    CHECK(co_await me.peer(rank).call<&with_references>(many, touchy()) == 2);
    CHECK(co_await many[1].call<&touchy::get>() == 1);
  });
}

}  // namespace
}  // namespace rref_faults
