// SPDX-License-Identifier: BSL-1.0
// References in messages whose tensors do not fit the receiver's memory: the call fails, the books
// are kept, and everything between the two goes on.
#include "pure.hpp"

#include <cstddef>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rref_shortage {

using namespace weft::testing;
using weft::as_expected;
using weft::errc;
using weft::rref;
using weft::worker;

constexpr std::size_t budget = 100'000;

/// So many bytes in a buffer of their own, as tensors travel; its receiver looks at none of them.
struct bulk {
  std::size_t size = 0;

  struct memory final : weft::blob_owner {
    explicit memory(std::size_t n) : bytes(n) {}
    std::vector<std::byte> bytes;
  };
  struct buffers final : weft::message_extension {
    std::vector<std::size_t> sizes;
    void finish(weft::message& m) override {
      if (sizes.empty()) return;
      m.section(weft::section_kind::tensors, {});
      for (const std::size_t n : sizes) {
        auto held = weft::make_intrusive<memory>(n);
        std::byte* const data = held->bytes.data();
        static_cast<void>(m.add_blob(weft::blob(data, n, std::move(held))));
      }
    }
  };
  static constexpr std::string_view weft_structure = "rref_shortage::bulk 1";
  friend void weft_encode(weft::writer& w, const bulk& b) {
    weft::encode(w, static_cast<std::uint64_t>(b.size));
    w.record().get<buffers>().sizes.push_back(b.size);
  }
  friend bulk weft_decode(weft::reader& r, std::type_identity<bulk>) {
    return {static_cast<std::size_t>(weft::decode<std::uint64_t>(r))};
  }
};
const bulk fits{1000};
const bulk too_large{budget + 1};

struct thing {
  int value = 0;
  thing(int v, bulk) : value(v) {}
  int get() { return value; }
  int add(bulk b) { return value + static_cast<int>(b.size); }
  asio::awaitable<int> add_later(bulk b) { co_return add(b); }
};
int count(std::vector<rref<thing>> many, bulk) { return static_cast<int>(many.size()); }
struct gift {
  std::vector<rref<thing>> things;
  bulk more;
};
gift give(worker& me, std::vector<rref<thing>> back, std::size_t size) {
  back.push_back(me.share(thing(5, {})));
  return {std::move(back), {size}};
}
std::vector<rref<thing>>& kept() {
  static std::vector<rref<thing>> it;
  return it;
}
void keep(std::vector<rref<thing>> many, bulk) { kept() = std::move(many); }

void with_little_memory(const pure_main& main_) {
  for (const over how : {over::tcp, over::unix_socket}) {
    for (const unsigned io_threads : io_ways()) {
      CAPTURE(name_of(how));
      CAPTURE(io_threads);
      weft::options o = with_io_threads(io_threads);
      o.bounds.link_tensor_bytes = budget;
      run_pure(2, how, o, main_);
    }
  }
}

/// The same books at both ends, and a link that lives.
asio::awaitable<void> check_whole(pure_cluster& all, worker& me) {
  CHECK(co_await nothing_is_left(all));
  for (const std::uint32_t r : {0u, 1u}) {
    const auto now = rrefs(all, r).counters();
    INFO(rrefs(all, r).describe());
    CHECK(now.pins == 0);
    CHECK(now.promised == 0);
    CHECK(now.created == now.released);
    CHECK(now.refused == 0);
  }
  CHECK(me.link_to(1).current_state() == weft::link::state::up);
}

namespace {

TEST_CASE("shortage: references in a request that does not fit come back") {
  with_little_memory([](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    std::vector<rref<thing>> many{me.share(thing(1, {})), me.peer(1).make<thing>(2, fits)};
    for (int round = 0; round < 3; ++round) {
      const auto e = co_await failure_of(me.peer(1).call<&count>(many, too_large, as_expected));
      CHECK(e == errc::resource_exhausted);
      CHECK(e.ran() == weft::call_progress::not_executed);
      me.peer(1).post<&keep>(many, too_large);
      CHECK(co_await eventually([&] { return rrefs(all, 0).counters().pins == 0; }));
      CHECK(co_await me.peer(1).call<&count>(many, fits) == 2);
    }
    CHECK(co_await many[1].call<&thing::get>() == 2);
    many.clear();
    co_await check_whole(all, me);
  });
}

TEST_CASE("shortage: an object whose making does not fit is failed, and its users are told") {
  with_little_memory([](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    for (int round = 0; round < 3; ++round) {
      auto made = me.peer(1).make<thing>(3, too_large);
      auto next = me.peer(1).make<thing>(4, fits);
      CHECK(co_await failure_of(made.call<&thing::get>(as_expected)) == errc::resource_exhausted);
      CHECK(co_await next.call<&thing::get>() == 4);
    }
    co_await check_whole(all, me);
  });
}

TEST_CASE("shortage: a use that does not fit leaves the object as it is") {
  with_little_memory([](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    auto made = me.peer(1).make<thing>(3, fits);
    CHECK(co_await failure_of(made.call<&thing::add>(too_large, as_expected)) ==
          errc::resource_exhausted);
    CHECK(co_await failure_of(made.call<&thing::add_later>(too_large, as_expected)) ==
          errc::resource_exhausted);
    auto sum = made.remote<&thing::add>(too_large);
    CHECK(co_await failure_of(sum.to_here(as_expected)) == errc::resource_exhausted);
    CHECK(co_await made.call<&thing::add>(fits) == 1003);
    made = {};
    sum = {};
    co_await check_whole(all, me);
  });
}

TEST_CASE("shortage: references in a reply that does not fit are given back") {
  with_little_memory([](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    std::vector<rref<thing>> mine{me.share(thing(1, {})), me.peer(1).make<thing>(2, fits)};
    for (int round = 0; round < 3; ++round) {
      const auto e = co_await failure_of(me.peer(1).call<&give>(mine, too_large.size, as_expected));
      CHECK(e == errc::resource_exhausted);
      CHECK(e.ran() == weft::call_progress::executed);
      const auto got = co_await me.peer(1).call<&give>(mine, fits.size);
      CHECK(got.things.size() == 3);
      CHECK(co_await got.things.back().call<&thing::get>() == 5);
    }
    mine.clear();
    co_await check_whole(all, me);
  });
}

}  // namespace
}  // namespace rref_shortage
