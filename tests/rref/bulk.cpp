// SPDX-License-Identifier: BSL-1.0
// Large tensors on a connection of their own, between real workers.
#include "objects.hpp"
#include <weft/rpc/into.hpp>
#include <weft/rref/stream.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <chrono>
#include <cstdint>
#include <rpc/engine_link.hpp>
#include <thread>
#include <vector>

namespace rref_tests {

using weft::as_expected;
using weft::errc;
using weft::future;
using weft::options;
using weft::within;

at::Tensor bulk_back(at::Tensor t) { return t + 1; }
asio::awaitable<at::Tensor> bulk_later(std::int64_t n) { co_return at::arange(n, at::kLong); }
std::atomic<int> bulk_seen{0};
asio::awaitable<void> bulk_taken(at::Tensor) {
  ++bulk_seen;
  co_return;
}
weft::immediate<int> bulk_count() { return bulk_seen.load(); }

/// Writes down what comes, in order.
struct bulk_log {
  std::vector<std::int64_t> all;
  weft::immediate<void> note(at::Tensor t, std::int64_t i) {
    all.push_back(t.numel() > 0 && t.eq(i).all().item<bool>() ? i : -1);
    return {};
  }
  weft::immediate<void> mark(std::int64_t i) {
    all.push_back(i);
    return {};
  }
  asio::awaitable<std::vector<std::int64_t>> read() { co_return all; }
};

options large_from(std::uint64_t bytes, unsigned io_threads) {
  options o = with_io_threads(io_threads);
  o.bulk_bytes = bytes;
  return o;
}
/// Over sockets, each with threads for links and without.
template <class Test>
void over_sockets(std::uint64_t bytes, Test test) {
  for (const auto how : {over::unix_socket, over::tcp}) {
    for (const unsigned io_threads : {0u, 1u}) {
      CAPTURE(name_of(how));
      CAPTURE(io_threads);
      run_workers(2, how, large_from(bytes, io_threads), test);
    }
  }
}

/// Until the second connection is open, large tensors travel with their calls.
asio::awaitable<void> until_it_is_open(worker& me, std::int64_t elements) {
  for (int i = 0; i < 10'000 && !engine_link(me, 1).sends_bulk(); ++i) {
    co_await me.peer(1).call<&bulk_back>(at::ones({elements}));
  }
  REQUIRE(engine_link(me, 1).sends_bulk());
}

TEST_CASE("bulk: a small call goes by a large one that was sent before it") {
  over_sockets(256 << 10, [](workers&, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    co_await until_it_is_open(me, 1 << 16);
    const at::Tensor huge = at::ones({64 << 20});  // 256 MiB: no buffer on the way takes it
    bulk_seen = 0;
    auto slow = me.spawn(p.call<&bulk_taken>(huge));
    co_await asio::post(asio::use_awaitable);
    CHECK((co_await p.call<&bulk_count>()) == 0);
    co_await std::move(slow);
    CHECK((co_await p.call<&bulk_count>()) == 1);
  });
}

TEST_CASE("bulk: a small call goes by a large result, also by one beyond the window") {
  const auto narrow = [](unsigned io_threads) {
    auto o = with_io_threads(io_threads);
    o.bulk_bytes = 256 << 10;
    o.window_bytes = 1 << 20;
    return o;
  };
  for (const unsigned io_threads : {0u, 1u}) {
    CAPTURE(io_threads);
    run_workers(
        2, over::tcp, narrow(io_threads), [](workers& all, worker& me) -> asio::awaitable<void> {
          const weft::peer p = me.peer(1);
          for (int i = 0; i < 10'000 && !engine_link(all.at(1), 0).sends_bulk(); ++i) {
            co_await p.call<&bulk_later>(1 << 16);
          }
          REQUIRE(engine_link(all.at(1), 0).sends_bulk());
          auto slow = me.spawn(p.call<&bulk_later>(32 << 20));  // 256 MiB
          CHECK(co_await eventually([&] { return engine_link(all.at(1), 0).waiting() > 0; }));
          static_cast<void>(co_await p.call<&bulk_count>());
          CHECK_FALSE(slow.ready());
          const at::Tensor came = co_await std::move(slow);
          CHECK(came.numel() == 32 << 20);
        });
  }
}

TEST_CASE("bulk: values arrive unchanged, both ways at once, among small ones") {
  over_sockets(64 << 10, [](workers& all, worker& me) -> asio::awaitable<void> {
    const auto some = [](worker& from, std::uint32_t to) -> asio::awaitable<void> {
      const weft::peer p = from.peer(to);
      std::vector<future<at::Tensor>> under_way;
      for (int i = 0; i < 40; ++i) {
        const std::int64_t n = i % 3 == 0 ? 10 : 10'000 + 7919 * i;
        under_way.push_back(from.spawn(p.call<&bulk_back>(at::full({n}, i, at::kLong))));
        if (i % 4 == 3) under_way.push_back(from.spawn(p.call<&bulk_later>(n)));
      }
      std::size_t at = 0;
      for (int i = 0; i < 40; ++i) {
        const at::Tensor back = co_await std::move(under_way[at++]);
        CHECK(back.eq(i + 1).all().item<bool>());
        if (i % 4 != 3) continue;
        const at::Tensor made = co_await std::move(under_way[at++]);
        CHECK(made.equal(at::arange(made.numel(), at::kLong)));
      }
    };
    auto other = all.at(1).spawn(some(all.at(1), 0));
    co_await some(me, 1);
    co_await std::move(other);
  });
}

TEST_CASE("bulk: calls by one reference keep their order, large or small") {
  over_sockets(1 << 10, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto log = me.peer(1).make<bulk_log>();
    CHECK((co_await log.call<&bulk_log::read>()).empty());
    std::vector<std::int64_t> sent;
    for (std::int64_t i = 0; i < 300; ++i) {
      if (i % 7 < 3) {
        log.post<&bulk_log::mark>(i);
      } else {
        log.post<&bulk_log::note>(at::full({i % 5 == 0 ? 100'000 : 200}, i, at::kLong), i);
      }
      sent.push_back(i);
    }
    CHECK((co_await log.call<&bulk_log::read>()) == sent);
  });
}

asio::awaitable<void> mixed_items(std::int64_t n, weft::sink<at::Tensor> out) {
  for (std::int64_t i = 0; i < n; ++i) {
    co_await out.write(at::full({i % 3 == 0 ? 100'000 : 2}, i, at::kLong));
  }
  if (n == 99) throw std::runtime_error("behind its items");
}

TEST_CASE("bulk: items of a stream keep their order, and what its function throws comes last") {
  over_sockets(1 << 10, [](workers&, worker& me) -> asio::awaitable<void> {
    for (const std::int64_t n : {100, 99}) {
      auto [in] = co_await me.peer(1).open<&mixed_items>(n);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto t = co_await in.next();
        REQUIRE(t);
        REQUIRE(t->eq(i).all().item<bool>());
      }
      if (n == 100) CHECK_FALSE(co_await in.next());
      if (n == 99) CHECK((co_await thrown_by(in.next())) == errc::remote_exception);
    }
  });
}

TEST_CASE("bulk: calls that are given up at any moment leave nothing, and the next is right") {
  over_sockets(1 << 10, [](workers& all, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    const at::Tensor large = at::ones({1 << 20}, at::kLong);
    at::Tensor there = at::empty({1 << 20}, at::kLong);
    for (int i = 0; i < 60; ++i) {
      auto one = me.spawn(p.call<&bulk_back>(large));
      if (i % 2 == 0) co_await asio::post(asio::use_awaitable);
      if (i % 3 != 0) co_await weft::sleep_for(std::chrono::microseconds(200 * i));
      {
        const auto dropped = std::move(one);
      }
      static_cast<void>(co_await p.call<&bulk_back>(
          large, within(std::chrono::microseconds(150 * i)), weft::into(there), as_expected));
      there.fill_(5);
      if (i % 10 == 9) {
        CHECK((co_await p.call<&bulk_back>(large)).eq(2).all().item<bool>());
        CHECK(there.eq(5).all().item<bool>());
      }
      static_cast<void>(co_await p.call<&bulk_back>(
          large, within(std::chrono::microseconds(100 * i)), as_expected));
    }
    CHECK(co_await eventually([&] {
      for (const std::uint32_t r : {0u, 1u}) {
        if (all.at(r).link_to(1 - r).waiting() != 0) return false;
      }
      return true;
    }));
  });
}

TEST_CASE("bulk: what a worker has no room for fails alone") {
  for (const unsigned io_threads : {0u, 1u}) {
    options o = large_from(1 << 10, io_threads);
    o.bounds.link_tensor_bytes = 4 << 20;
    run_workers(2, over::tcp, o, [](workers&, worker& me) -> asio::awaitable<void> {
      const weft::peer p = me.peer(1);
      for (int i = 0; i < 3; ++i) {
        CHECK((co_await p.call<&bulk_back>(at::ones({1000}))).eq(2).all().item<bool>());
        const auto too_large = co_await p.call<&bulk_back>(at::ones({2 << 20}), as_expected);
        REQUIRE_FALSE(too_large);
        CHECK(too_large.error() == errc::resource_exhausted);
        const auto no_room_here = co_await p.call<&bulk_later>(1 << 20, as_expected);
        REQUIRE_FALSE(no_room_here);
        CHECK(no_room_here.error() == errc::resource_exhausted);
      }
    });
  }
}

TEST_CASE("bulk: a lost peer ends what is on its way") {
  for (const unsigned io_threads : {0u, 1u}) {
    options o = large_from(1 << 10, io_threads);
    o.on_loss = weft::loss_policy::go_on();
    run_workers(2, over::tcp, o, [](workers& all, worker& me) -> asio::awaitable<void> {
      const weft::peer p = me.peer(1);
      co_await until_it_is_open(me, 1000);
      std::vector<future<weft::expected<at::Tensor>>> calls;
      const at::Tensor large = at::ones({16 << 20});
      for (int i = 0; i < 8; ++i) calls.push_back(me.spawn(p.call<&bulk_back>(large, as_expected)));
      co_await weft::sleep_for(10ms);
      all.at(0).link_to(1).mark_down(weft::error(errc::peer_died, "pulled"));
      int lost = 0;
      for (auto& c : calls) {
        const auto result = co_await std::move(c);
        if (result) continue;
        CHECK(result.error() == errc::peer_died);
        ++lost;
      }
      CHECK(lost > 0);
      CHECK((co_await p.call<&bulk_back>(large, as_expected)).error() == errc::peer_died);
    });
  }
}

}  // namespace rref_tests
