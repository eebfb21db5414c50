// SPDX-License-Identifier: BSL-1.0
// Contexts: where they are known, when they are forgotten, and which coroutine is in which.
#include "service_functions.hpp"
#include <weft/autograd/context.hpp>
#include <weft/engine/services/context_state.hpp>

#include <asio/detached.hpp>

#include <set>

namespace autograd_tests {

weft::autograd::context_id id_here() {
  const auto c = autograd_service::current();
  return c ? c->id : 0;
}
weft::immediate<std::uint64_t> id_there() { return {id_here()}; }
asio::awaitable<std::uint64_t> id_there_later() {
  const auto before = id_here();
  co_await asio::post(asio::use_awaitable);
  co_return id_here() == before ? before : ~std::uint64_t{0};
}
/// Calls the next worker, and that the next one, `depth` times.
asio::awaitable<at::Tensor> onward(worker& me, at::Tensor x, int depth) {
  if (depth == 0) co_return x * 2;
  co_return co_await me.peer((me.rank() + 1) % me.world_size()).call<&onward>(x, depth - 1);
}

TEST_CASE("autograd context: each has an id of its own, and none is left") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    std::set<weft::autograd::context_id> ids;
    for (int i = 0; i < 200; ++i) {
      const auto id = co_await weft::autograd::with_context(
          me, [&](context ctx) -> asio::awaitable<weft::autograd::context_id> {
            CHECK(co_await me.peer(1).call<&id_there>() == ctx.id());
            co_return ctx.id();
          });
      CHECK(weft::autograd::creator_of(id) == 0);
      ids.insert(id);
    }
    CHECK(ids.size() == 200);
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd context: a second one inside the first is refused") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
      const auto inner = [&me] {
        return weft::autograd::with_context(me,
                                            [](context) -> asio::awaitable<void> { co_return; });
      };
      CHECK(co_await thrown_by(inner()) == errc::invalid_argument);
      CHECK(contexts_everywhere(all) == 1);
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd context: it is forgotten wherever calls led, with or without tensors") {
  workers_everywhere(4, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor with = leaf(1, {2}), without = leaf(2, {2}).detach();
    for (const at::Tensor& x : {with, without}) {
      co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
        static_cast<void>(co_await me.peer(1).call<&onward>(x, 2));
        CHECK(contexts_everywhere(all) == 4);
      });
      CHECK(co_await all_forgotten(all));
    }
    co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
      co_await me.peer(2).call<&nothing>();
      CHECK(contexts_everywhere(all) == 2);
      CHECK(service(all, 2).contexts() == 1);
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd context: its release costs one message per worker that joined") {
  run_workers(4, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {2});
    co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
      for (int i = 0; i < 5; ++i) static_cast<void>(co_await me.peer(1).call<&onward>(x, 6));
      CHECK(frames_everywhere(all) == 0);
    });
    CHECK(co_await all_forgotten(all));
    CHECK(service(all, 0).frames() == 3);
    CHECK(frames_everywhere(all) == 3);
  });
}

/// Starts a call to worker 2 that nobody waits for.
asio::awaitable<void> start_below(worker& me, at::Tensor x) {
  me.peer(2).start<&onward>(x, 0).detach();
  co_return;
}
at::Tensor held(const at::Tensor& x) {
  if (gate* d = fragile::door.load()) d->pass();
  return x * 2;
}
asio::awaitable<at::Tensor> hold_below(worker& me, at::Tensor x) {
  co_return co_await me.peer(2).call<&held>(x);
}

TEST_CASE("autograd context: calls that outlive it leave nothing behind") {
  for (const over how : {over::inproc, over::tcp}) {
    run_workers(3, how, with_io_threads(1), [](workers& all, worker& me) -> asio::awaitable<void> {
      const at::Tensor x = leaf(1, {2});
      for (int i = 0; i < 100; ++i) {
        // The answer comes before the callee has called on, or after, or never to anybody.
        co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
          co_await me.peer(1).call<&start_below>(x);
        });
        co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
          me.peer(1).start<&onward>(x, 1).detach();
          co_return;
        });
        co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
          auto dropped = me.peer(1).start<&onward>(x, 3);
          co_return;
        });
      }
      CHECK(co_await all_forgotten(all));
    });
  }
}

TEST_CASE("autograd context: who joined below a call that outlives it is told at its release") {
  run_workers(3, over::tcp, with_io_threads(1),
              [](workers& all, worker& me) -> asio::awaitable<void> {
                gate door;
                fragile::door = &door;
                const at::Tensor x = leaf(1, {2});
                weft::future<at::Tensor> late;
                co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
                  late = me.peer(1).start<&hold_below>(x);
                  CHECK(co_await eventually([&] { return door.arrived() == 1; }));
                  CHECK(service(all, 2).contexts() == 1);
                });
                // Worker 0 did not know of worker 2; worker 1 tells it, so it is free before the
                // call ends.
                CHECK(co_await all_forgotten(all));
                door.open();
                const at::Tensor y = co_await std::move(late);
                CHECK(same(y.detach(), x.detach() * 2));
                fragile::door = nullptr;
                CHECK(co_await all_forgotten(all));
              });
}

TEST_CASE("autograd context: what is used too late is gone, and says why") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {2});
    std::vector<context> kept;
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      kept.push_back(ctx);
      co_return;
    });
    const auto backward = co_await thrown_by(kept[0].backward(x.sum()));
    CHECK(backward == errc::autograd_context_gone);
    CHECK(backward.message().find("was released") != std::string::npos);
    CHECK(co_await thrown_by(kept[0].gradients()) == errc::autograd_context_gone);
    // And where there never was one:
    const auto none = co_await thrown_by(me.peer(1).call<&gradients_here>());
    CHECK(none.message().find("no autograd context is open") != std::string::npos);
    CHECK(none.cause() == errc::autograd_context_gone);
  });
}

TEST_CASE("autograd context: calls outside of any are not recorded, nor one-way calls inside") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {2});
    CHECK(co_await me.peer(1).call<&id_there>() == 0);
    CHECK(co_await me.peer(1).call<&is_leaf>(x));
    CHECK(co_await me.peer(1).call<&requires_grad>(x));
    const at::Tensor y = co_await me.peer(1).call<&add>(x, x);
    CHECK(y.requires_grad());  // and a history that is lost, which slips.cpp is about
    co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
      me.peer(1).post<&add>(x, x);
      co_return;
    });
    co_await me.peer(1).call<&nothing>();  // behind the other
    CHECK(all.at(1).stats().served >= 5);
    CHECK(frames_everywhere(all) == 0);
    CHECK(contexts_everywhere(all) == 0);
  });
}

TEST_CASE("autograd context: each coroutine is in its own, also after it waited") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    std::vector<weft::future<bool>> coroutines;
    const auto inside = [&me]() -> asio::awaitable<bool> {
      co_return co_await weft::autograd::with_context(
          me, [&](context ctx) -> asio::awaitable<bool> {
            bool right = id_here() == ctx.id();
            for (int i = 0; i < 20; ++i) {
              right = right && co_await me.peer(1).call<&id_there_later>() == ctx.id();
              right = right && id_here() == ctx.id();
              co_await asio::post(asio::use_awaitable);
              right = right && id_here() == ctx.id();
            }
            right = right && co_await me.spawn(me.peer(1).call<&id_there>()).get() == ctx.id();
            co_return right;
          });
    };
    const auto outside = [&me]() -> asio::awaitable<bool> {
      bool right = id_here() == 0;
      for (int i = 0; i < 20; ++i) {
        right = right && co_await me.peer(1).call<&id_there_later>() == 0;
        co_await asio::post(asio::use_awaitable);
        right = right && id_here() == 0;
      }
      co_return right;
    };
    for (int i = 0; i < 5; ++i) {
      coroutines.push_back(me.spawn(inside()));
      coroutines.push_back(me.spawn(outside()));
    }
    for (auto& c : coroutines) CHECK(co_await std::move(c));
    CHECK(id_here() == 0);
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd context: recording is switched per coroutine") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto look = [&me](bool expected) -> asio::awaitable<bool> {
      bool right = true;
      for (int i = 0; i < 20; ++i) {
        right = right && at::GradMode::is_enabled() == expected;
        co_await asio::post(asio::use_awaitable);
        co_await me.peer(1).call<&nothing>();
      }
      co_return right&& at::GradMode::is_enabled() == expected;
    };
    std::vector<weft::future<bool>> coroutines;
    for (int i = 0; i < 4; ++i) {
      coroutines.push_back(me.spawn(weft::with_grad_mode(me, weft::grad_mode::off, look(false))));
      coroutines.push_back(me.spawn(look(true)));
    }
    for (auto& c : coroutines) CHECK(co_await std::move(c));
    const auto on_inside = [&]() -> asio::awaitable<bool> {
      const bool off = !at::GradMode::is_enabled();
      const bool on = co_await weft::with_grad_mode(me, weft::grad_mode::on, look(true));
      co_return off&& on && !at::GradMode::is_enabled();
    };
    CHECK(co_await weft::with_grad_mode(me, weft::grad_mode::off, on_inside()));
    CHECK(at::GradMode::is_enabled());
  });
}

TEST_CASE("autograd context: with recording off, nothing has history and nothing is sent") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3, 3});
    const auto there = me.peer(1).make<pair_of_parameters>(1);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const auto recorded = [&] {
        const std::lock_guard lock(weft::engine::state_of(ctx.state())->mutex);
        return weft::engine::state_of(ctx.state())->sends.size();
      };
      const auto evaluate = [&]() -> asio::awaitable<at::Tensor> {
        const at::Tensor h = x * 1;
        CHECK(h.requires_grad() == at::GradMode::is_enabled());
        CHECK(co_await me.peer(1).call<&requires_grad>(h) == at::GradMode::is_enabled());
        co_return co_await there.call<&pair_of_parameters::use_first>(x);
      };
      const at::Tensor y = co_await weft::with_grad_mode(me, weft::grad_mode::off, evaluate());
      CHECK_FALSE(y.requires_grad());
      CHECK_FALSE(y.grad_fn());
      CHECK(recorded() == 0);
      // A pass over what came of it is one of this worker alone.
      co_await ctx.backward((y * x).sum() * 0);
      CHECK(frames_everywhere(all) == 0);
      const at::Tensor z = co_await evaluate();
      CHECK(z.requires_grad());
      CHECK(recorded() == 2);
      co_await ctx.backward((y * z).sum());
      const at::Tensor lx = twin(x), lw = leaf(1, {3, 3}).detach();
      (lx.detach().matmul(lw) * lx.matmul(lw)).sum().backward();
      CHECK(same((co_await ctx.gradients()).find(x), lx.grad()));
      CHECK(frames_everywhere(all) != 0);
    });
    CHECK(co_await all_forgotten(all));
  });
}

// ── released_contexts ──

TEST_CASE("autograd released contexts: a set of numbers per creator") {
  using namespace weft::autograd;
  released_contexts r;
  std::set<context_id> reference;
  std::uint64_t seed = 1;
  for (int i = 0; i < 4000; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const auto id = make_context_id(static_cast<worker_rank>(seed >> 33) % 3,
                                    1 + static_cast<std::uint32_t>(seed >> 40) % 500);
    CHECK(r.contains(id) == reference.contains(id));
    r.add(id);
    reference.insert(id);
    CHECK(r.contains(id));
  }
  for (worker_rank w = 0; w < 4; ++w) {
    for (std::uint32_t s = 0; s < 510; ++s) {
      const auto id = make_context_id(w, s);
      CHECK(r.contains(id) == reference.contains(id));
    }
  }
}

TEST_CASE("autograd released contexts: beyond the limit the oldest gaps count as released") {
  using namespace weft::autograd;
  released_contexts r(10);
  for (std::uint32_t s = 2; s <= 400; s += 2) r.add(make_context_id(1, s));
  CHECK(r.intervals(1) == 10);
  CHECK_FALSE(r.contains(make_context_id(1, 1)));
  CHECK(r.contains(make_context_id(1, 3)));
  CHECK_FALSE(r.contains(make_context_id(1, 399)));
  CHECK(r.contains(make_context_id(1, 400)));
  CHECK_FALSE(r.contains(make_context_id(1, 401)));
  for (const std::uint32_t s : {0u, 0xffffffffu}) {
    r.add(make_context_id(2, s));
    CHECK(r.contains(make_context_id(2, s)));
  }
  CHECK(r.intervals(2) == 2);
}

}  // namespace autograd_tests
