// SPDX-License-Identifier: BSL-1.0
// Results into memory that is there.
#include "objects.hpp"
#include <weft/engine/serving/link_host.hpp>
#include <weft/rpc/into.hpp>
#include <weft/rpc/retry.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <rpc/engine_link.hpp>
#include <string>

namespace rref_tests {

using weft::errc;
using weft::into;
using weft::within;

std::atomic<int> filled_times{0};

at::Tensor filled_with(std::int64_t n, double value) {
  ++filled_times;
  return at::full({n}, value, at::kFloat);
}
at::Tensor counted(std::int64_t n) { return at::arange(n, at::kLong); }
at::Tensor turned() { return at::arange(12, at::kLong).view({3, 4}).t(); }
at::Tensor every_other(std::int64_t n) {
  return at::arange(2 * n, at::kLong).slice(0, 0, 2 * n, 2);
}
at::Tensor bools(std::int64_t n) { return at::ones({n}, at::kBool); }
at::Tensor leaf() { return at::ones({4}).requires_grad_(); }
at::Tensor throws_instead() { throw std::runtime_error("no tensor today"); }
asio::awaitable<at::Tensor> late_tensor(std::int64_t n) {
  co_await weft::sleep_for(50ms);
  co_return at::full({n}, 7.0, at::kFloat);
}
struct shelf_of_tensors {
  at::Tensor get(std::int64_t n) { return at::full({n}, 3.0, at::kFloat); }
};

TEST_CASE("into: a result is read into the tensor that was given, and the call gives that") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    for (const std::int64_t n : {0, 1, 1000, 100'000, 3'000'000}) {
      at::Tensor t = at::zeros({n}, at::kFloat);
      const void* const where = t.data_ptr();
      const at::Tensor got = co_await p.call<&filled_with>(n, 2.5, into(t));
      CHECK(got.is_same(t));
      CHECK(t.data_ptr() == where);
      CHECK(t.eq(2.5).all().item<bool>());
      CHECK((co_await p.call<&filled_with>(n, 1.5, within(5s), into(t), weft::as_expected))
                ->is_same(t));
      CHECK(t.eq(1.5).all().item<bool>());
    }
    const at::Tensor wide = at::zeros({10, 5000}, at::kLong);
    at::Tensor row = wide[3];
    co_await p.call<&counted>(5000, into(row));
    CHECK(wide[3].equal(at::arange(5000)));
    CHECK(wide[2].eq(0).all().item<bool>());
    CHECK(wide[4].eq(0).all().item<bool>());
    const auto r = p.make<shelf_of_tensors>();
    at::Tensor t = at::empty({100'000});
    co_await r.call<&shelf_of_tensors::get>(100'000, into(t));
    CHECK(t.eq(3.0).all().item<bool>());
    co_await me.peer(0).call<&filled_with>(100'000, 4.0, into(t));  // of this worker itself
    CHECK(t.eq(4.0).all().item<bool>());
  });
}

TEST_CASE("into: results of other strides, of bools, and of views arrive as they are") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    at::Tensor t = at::zeros({4, 3}, at::kLong);
    co_await p.call<&turned>(into(t));
    CHECK(t.equal(turned()));
    CHECK(t.is_contiguous());
    at::Tensor columns = at::zeros({3, 4}, at::kLong).t();
    co_await p.call<&turned>(into(columns));
    CHECK(columns.equal(turned()));
    at::Tensor many = at::zeros({20'000}, at::kLong);
    co_await p.call<&every_other>(20'000, into(many));
    CHECK(many.equal(every_other(20'000)));
    at::Tensor flags = at::zeros({100'000}, at::kBool);
    co_await p.call<&bools>(100'000, into(flags));
    CHECK(flags.all().item<bool>());
  });
}

TEST_CASE("into: what does not fit fails its call, and the link lives") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    const auto error_of = [](asio::awaitable<at::Tensor> call) {
      return thrown_by(std::move(call));
    };
    at::Tensor t = at::zeros({100'000}, at::kFloat);
    auto e = co_await error_of(p.call<&filled_with>(100'001, 2.0, into(t)));
    CHECK(e == errc::invalid_argument);
    CHECK(e.message().find("the result is Float [100001], the tensor of weft::into is Float "
                           "[100000]") != std::string::npos);
    CHECK(e.detail().peer == p.name());
    CHECK(t.eq(0).all().item<bool>());
    at::Tensor other = at::zeros({100'000}, at::kInt);  // as many bytes
    e = co_await error_of(p.call<&filled_with>(100'000, 2.0, into(other)));
    CHECK(e.message().find("is Int [100000]") != std::string::npos);
    at::Tensor four = at::zeros({4});
    CHECK((co_await error_of(p.call<&leaf>(into(four)))) == errc::invalid_argument);
    CHECK((co_await error_of(p.call<&throws_instead>(into(four)))) == errc::remote_exception);
    co_await p.call<&filled_with>(4, 2.0, into(four));
    CHECK(four.eq(2).all().item<bool>());

    const auto refused = [](const at::Tensor& bad) {
      try {
        static_cast<void>(into(bad));
      } catch (const weft::rpc_error& thrown) {
        return thrown.error() == errc::invalid_argument;
      }
      return false;
    };
    CHECK(refused(at::Tensor()));
    CHECK(refused(at::zeros({4, 4}).slice(1, 0, 2)));
    CHECK(refused(at::zeros({1}).expand({4})));
    CHECK(refused(at::zeros({4}).requires_grad_()));
  });
}

at::Tensor itself(at::Tensor t) { return t; }

TEST_CASE("into: an argument's own memory is refused before anything is sent") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    at::Tensor t = at::zeros({4});
    bool refused = false;
    try {
      static_cast<void>(me.peer(1).call<&itself>(t, into(t)));
    } catch (const weft::rpc_error& e) {
      refused = e.error() == errc::invalid_argument;
    }
    CHECK(refused);
    at::Tensor u = at::zeros({4});
    co_await me.peer(1).call<&itself>(t.fill_(5), into(u));
    CHECK(u.eq(5).all().item<bool>());
  });
}

TEST_CASE("into: when the call has ended, nothing writes there, whenever it is given up") {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    run_workers(2, how, with_io_threads(io_threads),
                [](workers&, worker& me) -> asio::awaitable<void> {
                  const weft::peer p = me.peer(1);
                  constexpr std::int64_t n = 4'000'000;
                  at::Tensor t = at::zeros({n}, at::kFloat);
                  int given_up = 0;
                  for (int i = 0; i < 60; ++i) {
                    t.fill_(1.0);
                    auto call = me.spawn(thrown_by(p.call<&filled_with>(n, 2.0, into(t))));
                    const auto until =
                        std::chrono::steady_clock::now() + std::chrono::microseconds(300 * i);
                    while (std::chrono::steady_clock::now() < until &&
                           !call.ready()) {  // bounded: by `until`
                      co_await asio::post(asio::use_awaitable);
                    }
                    call.request_stop();
                    if ((co_await std::move(call)) == errc::cancelled) ++given_up;
                    t.fill_(9.0);  // what comes now would be seen
                    CHECK((co_await p.call<&filled_with>(3, 4.0)).eq(4).all().item<bool>());
                    CHECK(t.eq(9.0).all().item<bool>());
                  }
                  CHECK(given_up > 0);
                  const auto e = co_await thrown_by(p.call<&late_tensor>(n, into(t), within(10ms)));
                  CHECK(e == errc::timed_out);
                  t.fill_(9.0);
                  co_await weft::sleep_for(100ms);
                  CHECK((co_await p.call<&filled_with>(3, 4.0)).eq(4).all().item<bool>());
                  CHECK(t.eq(9.0).all().item<bool>());
                  co_await p.call<&late_tensor>(n, into(t), weft::retry{});
                  CHECK(t.eq(7.0).all().item<bool>());
                });
  }
}

TEST_CASE("into: a lost link ends the call, and nothing writes there") {
  auto goes_on = with_io_threads(1);
  goes_on.on_loss = weft::loss_policy::go_on();
  run_workers(2, over::tcp, goes_on, [](workers& all, worker& me) -> asio::awaitable<void> {
    constexpr std::int64_t n = 8'000'000;
    at::Tensor t = at::zeros({n}, at::kFloat);
    auto call = me.spawn(thrown_by(me.peer(1).call<&filled_with>(n, 2.0, into(t))));
    filled_times = 0;
    CHECK(co_await eventually([] { return filled_times > 0; }));
    all.at(0).link_to(1).mark_down(weft::error(errc::peer_died, "pulled"));
    const auto e = co_await std::move(call);
    CHECK((!e || e == errc::peer_died));
    t.fill_(9.0);
    co_await weft::sleep_for(20ms);
    CHECK(t.eq(9.0).all().item<bool>());
  });
}

// ── arguments ──

/// The memory of the callee, and what its functions saw. In one process: worker 1 is the callee.
at::Tensor shelf_memory;
std::atomic<int> asked_where{0}, received_there{0};
at::Tensor on_the_shelf(const weft::announced& what) {
  ++asked_where;
  if (what.sizes.size() != 1 || what.sizes[0] > shelf_memory.numel()) {
    throw std::runtime_error("the shelf is too small");
  }
  return shelf_memory.slice(0, 0, what.sizes[0]);
}
at::Tensor nowhere(const weft::announced&) { return at::zeros({3}).requires_grad_(); }
using shelved = weft::into<at::Tensor, &on_the_shelf>;
double put(shelved t, double plus) {
  if (t.tensor().data_ptr() == shelf_memory.data_ptr()) ++received_there;
  return t.tensor().sum().item<double>() + plus;
}
double put_behind(int, const shelved& t) { return t.tensor().sum().item<double>(); }
double put_nowhere(weft::into<at::Tensor, &nowhere> t) { return t.tensor().sum().item<double>(); }

TEST_CASE("into: an argument is read into the tensor that its function's place names") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    shelf_memory = at::zeros({3'000'000});
    const void* const where = shelf_memory.data_ptr();
    for (const std::int64_t n : {1, 1000, 100'000, 3'000'000}) {
      received_there = 0;
      CHECK((co_await p.call<&put>(at::ones({n}), 0.5)) == static_cast<double>(n) + 0.5);
      CHECK(received_there == 1);
      CHECK(shelf_memory.slice(0, 0, n).eq(1).all().item<bool>());
      CHECK(shelf_memory.data_ptr() == where);
      shelf_memory.zero_();
    }
    CHECK((co_await p.call<&put>(at::ones({0}), 0.5)) == 0.5);
    CHECK((co_await p.call<&put_behind>(1, at::ones({1000}))) == 1000);
    // Views of one storage, and a transposed one, are copied into place.
    CHECK((co_await p.call<&put>(at::ones({2000}).slice(0, 0, 2000, 2), 0.0)) == 1000);
    CHECK(shelf_memory.sum().item<double>() == 1000);
  });
}

TEST_CASE("into: no memory is allocated for what has a place") {
  for (const over how : {over::tcp, over::unix_socket}) {
    run_workers(2, how, with_io_threads(0), [](workers& all, worker& me) -> asio::awaitable<void> {
      const auto allocated = [&] {
        std::uint64_t n = 0;
        for (std::uint32_t r = 0; r < 2; ++r) {
          const auto seen = static_cast<weft::engine::link_host&>(all.at(r)).buffers().stats();
          n += seen.hits + seen.misses;
        }
        return n;
      };
      const weft::peer p = me.peer(1);
      shelf_memory = at::zeros({1'000'000});
      at::Tensor t = at::zeros({1'000'000});
      const at::Tensor ones = at::ones({1'000'000});
      // What comes with a handshake is read before its link is there; large tensors have a second
      // connection, which opens beside the first calls.
      const auto open = [&] {
        return engine_link(me, 1).sends_bulk() && engine_link(all.at(1), 0).sends_bulk();
      };
      // bounded: and three rounds behind it
      for (int i = 0, behind = 0; i < 10'000 && behind < 3; ++i) {
        if (open()) ++behind;
        co_await p.call<&put>(ones.slice(0, 0, 1000), 0.0);
        co_await p.call<&filled_with>(1000, 2.0);
      }
      REQUIRE(open());
      const auto before = allocated();
      CHECK((co_await p.call<&put>(ones, 0.0)) == 1'000'000);
      co_await p.call<&filled_with>(1'000'000, 2.0, into(t));
      CHECK(t.eq(2).all().item<bool>());
      CHECK(allocated() == before);
      co_await p.call<&filled_with>(1'000'000, 2.0);
      CHECK(allocated() == before + 1);
    });
  }
}

TEST_CASE("into: an argument that has no place fails its call, and the link lives") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    shelf_memory = at::zeros({1000});
    const auto too_large = co_await p.call<&put>(at::ones({1001}), 0.0, weft::as_expected);
    REQUIRE_FALSE(too_large);
    CHECK(too_large.error().message().find("the shelf is too small") != std::string::npos);
    CHECK(too_large.error().ran() == weft::call_progress::not_executed);
    const auto other = co_await p.call<&put>(at::ones({100}, at::kLong), 0.0, weft::as_expected);
    REQUIRE_FALSE(other);
    CHECK(other.error().message().find("the argument is Long [100], the tensor of weft::into is "
                                       "Float [100]") != std::string::npos);
    CHECK_FALSE(co_await p.call<&put_nowhere>(at::ones({3}), weft::as_expected));
    CHECK_FALSE(co_await p.call<&put>(at::ones({100}).requires_grad_(), 0.0, weft::as_expected));
    CHECK((co_await p.call<&put>(at::ones({100}), 0.0)) == 100);
  });
}

TEST_CASE("into: arguments and results of the same call, and of many at once") {
  run_workers(2, over::tcp, with_io_threads(1), [](workers&, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    shelf_memory = at::zeros({100'000});
    std::vector<asio::awaitable<at::Tensor>> calls;
    std::vector<at::Tensor> results;
    for (int i = 0; i < 20; ++i) {
      results.push_back(at::zeros({50'000 + i}));
      calls.push_back(p.call<&filled_with>(50'000 + i, i, into(results.back())));
    }
    auto puts = me.spawn(p.call<&put>(at::ones({100'000}), 1.0));
    co_await weft::gather(std::move(calls));
    CHECK((co_await std::move(puts)) == 100'001);
    for (int i = 0; i < 20; ++i)
      CHECK(results[static_cast<std::size_t>(i)].eq(i).all().item<bool>());
  });
}

}  // namespace rref_tests
