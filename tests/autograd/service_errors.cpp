// SPDX-License-Identifier: BSL-1.0
// Backward passes that fail: what the caller hears, and that nothing of them is left.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>
#include <weft/engine/services/context_state.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>

namespace autograd_tests {

/// Restores what `fragile` does.
struct fragile_settings {
  ~fragile_settings() {
    fragile::broken = false;
    fragile::door = nullptr;
  }
};

/// A closed gate in the fragile node, for as long as this lives.
class fragile_door : public gate {
 public:
  fragile_door() { fragile::door = this; }

 private:
  const fragile_settings restore_;
};

TEST_CASE("autograd errors: roots that cannot be are refused with a sentence") {
  run_workers(1, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const auto refused = [&](std::vector<at::Tensor> roots, std::vector<at::Tensor> gradients,
                               const char* text) -> asio::awaitable<void> {
        const auto e =
            co_await thrown_by(ctx.backward(std::move(roots), {.gradients = std::move(gradients)}));
        CAPTURE(e.message());
        CAPTURE(text);
        CHECK(e == errc::invalid_argument);
        CHECK(says(e, text));
      };
      co_await refused({}, {}, "no root");
      co_await refused({at::Tensor()}, {}, "undefined");
      co_await refused({at::ones({})}, {}, "does not require grad");
      co_await refused({a.sum().detach()}, {}, "does not require grad");
      co_await refused({a * 2}, {}, "not a scalar");
      co_await refused({a.sum(), a * 2}, {}, "root 1");
      co_await refused({a * 2}, {at::ones({4})}, "shape");
      co_await refused({a * 2}, {at::ones({3}, at::kDouble)}, "dtype");
      co_await refused({a * 2}, {at::ones({3}), at::ones({3})}, "2 gradients for 1");
      CHECK((co_await ctx.gradients()).empty());
    });
  });
}

TEST_CASE("autograd errors: a node that throws elsewhere is named with its worker") {
  workers_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const fragile_settings restore;
    const at::Tensor a = leaf(1, {3});
    const auto there = me.peer(2).make<pair_of_parameters>(1);
    const auto first = there.remote<&pair_of_parameters::first>();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor x = co_await me.peer(1).call<&fragile_twice>(a);
      const at::Tensor y = co_await there.call<&pair_of_parameters::use_first>(x.reshape({1, 3}));
      const at::Tensor loss = y.sum();
      const auto retained = [&] {
        return ctx.backward(loss, {.retention = graph_retention::retain});
      };
      fragile::broken = true;
      for (int i = 0; i < 20; ++i) {
        const auto e = co_await thrown_by(retained());
        CHECK(e == errc::autograd_pass_aborted);
        CHECK(says(e, "worker1"));
        CHECK(says(e, "the fragile node broke"));
        CHECK(e.detail().peer == "worker1");
      }
      // Nothing of those passes is to be seen, here or where it had run already.
      CHECK((co_await ctx.gradients()).empty());
      CHECK_FALSE((co_await first.call<&gradient_of>()).defined());
      fragile::broken = false;
      const at::Tensor la = twin(a), lw = leaf(1, {3, 3});
      (la * 2).reshape({1, 3}).matmul(lw).sum().backward();
      for (int i = 0; i < 20; ++i) co_await retained();
      CHECK(same((co_await ctx.gradients()).find(a), la.grad() * 20));
      CHECK(same(co_await first.call<&gradient_of>(), lw.grad() * 20));
      CHECK(co_await eventually([&] { return passes_everywhere(all) == 0; }));
    });
    CHECK(co_await all_forgotten(all));
  });
}

asio::awaitable<at::Tensor> nested_fragile(worker& me, at::Tensor x) {
  co_return (co_await me.peer((me.rank() + 1) % me.world_size()).call<&fragile_twice>(x)) + x;
}

TEST_CASE("autograd errors: a node that throws below a nested call, or here, is named too") {
  run_workers(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const fragile_settings restore;
    const at::Tensor a = leaf(1, {3});
    fragile::broken = true;
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&nested_fragile>(a);
      const auto below = co_await thrown_by(ctx.backward(y.sum()));
      CHECK(below == errc::autograd_pass_aborted);
      CHECK(below.detail().peer == "worker2");
      const auto here = co_await thrown_by(ctx.backward(fragile_twice(a).sum()));
      CHECK(here == errc::autograd_pass_aborted);
      CHECK(here.detail().peer == "worker0");
      CHECK((co_await ctx.gradients()).empty());
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd errors: a second pass over a released graph says so, and where") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor loss = (co_await me.peer(1).call<&mul>(a, b)).sum();
      co_await ctx.backward(loss);
      const at::Tensor once = (co_await ctx.gradients()).find(a).clone();
      const auto e = co_await thrown_by(ctx.backward(loss));
      CHECK(e == errc::autograd_pass_aborted);
      CHECK(e.detail().peer == "worker1");
      CHECK(says(e, "second time"));
      CHECK(same((co_await ctx.gradients()).find(a), once));
    });
  });
}

TEST_CASE("autograd errors: a failed call in a context leaves a clean end") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3, 2}), b = leaf(2, {7});
    const auto e =
        co_await thrown_by(weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
          static_cast<void>(co_await me.peer(1).call<&matmul>(a, b));
        }));
    CHECK(e == errc::remote_exception);
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd errors: the deadline of a pass ends it everywhere") {
  run_workers(
      2, over::tcp, with_io_threads(1), [](workers& all, worker& me) -> asio::awaitable<void> {
        fragile_door door;
        const at::Tensor a = leaf(1, {3});
        co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor loss = (co_await me.peer(1).call<&fragile_twice>(a)).sum();
          const auto e = co_await thrown_by(
              ctx.backward(loss, {.retention = graph_retention::retain, .limit = 30ms}));
          CHECK(e == errc::timed_out);
          CHECK((co_await ctx.gradients()).empty());
          CHECK(co_await eventually([&] { return passes_everywhere(all) == 0; }));
          door.open();
          co_await ctx.backward(loss);
          CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 2.0)));
        });
        CHECK(co_await all_forgotten(all));
      });
}

TEST_CASE("autograd errors: a cancelled pass ends everywhere") {
  run_workers(
      2, over::tcp, with_io_threads(1), [](workers& all, worker& me) -> asio::awaitable<void> {
        fragile_door door;
        const at::Tensor a = leaf(1, {3});
        co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor loss = (co_await me.peer(1).call<&fragile_twice>(a)).sum();
          {
            auto dropped = me.spawn(ctx.backward(loss, {.retention = graph_retention::retain}));
            CHECK(co_await eventually([&] { return door.arrived() == 1; }));
          }
          CHECK(co_await eventually([&] { return passes_everywhere(all) == 0; }));
          // By Asio's means, which deliver an error.
          asio::cancellation_signal stop;
          weft::error heard;
          auto watch = [](asio::awaitable<void> work, weft::error& out) -> asio::awaitable<void> {
            out = co_await thrown_by(std::move(work));
          };
          asio::co_spawn(me.get_executor(),
                         watch(ctx.backward(loss, {.retention = graph_retention::retain}), heard),
                         asio::bind_cancellation_slot(stop.slot(), [](std::exception_ptr) {}));
          CHECK(co_await eventually([&] { return service(all, 1).passes() == 1; }));
          stop.emit(asio::cancellation_type::terminal);
          CHECK(co_await eventually([&] { return bool(heard); }));
          CHECK(heard == errc::cancelled);
          CHECK(co_await eventually([&] { return passes_everywhere(all) == 0; }));
          door.open();
          co_await ctx.backward(loss);
          CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 2.0)));
        });
        CHECK(co_await all_forgotten(all));
      });
}

TEST_CASE("autograd errors: a pass that is under way when its context ends hears of that") {
  run_workers(
      2, over::tcp, with_io_threads(1), [](workers& all, worker& me) -> asio::awaitable<void> {
        fragile_door door;
        const at::Tensor a = leaf(1, {3});
        weft::future<weft::error> pass;
        co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor loss = (co_await me.peer(1).call<&fragile_twice>(a)).sum();
          pass = me.spawn(thrown_by(ctx.backward(loss)));
          CHECK(co_await eventually([&] { return door.arrived() == 1; }));
        });
        const auto e = co_await std::move(pass);
        CHECK(e == errc::autograd_context_gone);
        CHECK(says(e, "released"));
        CHECK(co_await all_forgotten(all));
        door.open();
      });
}

/// Releases its context, on a pool thread, in the middle of a pass.
struct release_inside : torch::autograd::Function<release_inside> {
  static inline std::atomic<autograd_service*> owner{nullptr};
  static inline autograd_service::context_ptr state;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list g) {
    owner.load()->release(state);
    return g;
  }
};

TEST_CASE("autograd errors: a context may be released from within backward") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    at::Tensor x = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      for (int i = 0; i < 50; ++i) x = co_await me.peer(1).call<&twice>(x);
      x = release_inside::apply(x);
      for (int i = 0; i < 50; ++i) x = co_await me.peer(1).call<&twice>(x);
      release_inside::state = ctx.state();
      release_inside::owner = &service(all, 0);
      CHECK(co_await thrown_by(ctx.backward(x.sum())) == errc::autograd_context_gone);
    });
    CHECK(co_await all_forgotten(all));
  });
}

/// The error of a pass during which `end(all)` is called, and how long it took.
void check_loss(const std::function<void(workers&)>& end) {
  fragile_door door;
  weft::error heard;
  std::optional<weft::error> late;  // of a second pass, once it is over
  workers all(3, over::tcp, with_io_threads(1));
  static_cast<void>(all.run([&](workers&, worker& me) -> asio::awaitable<void> {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor a = leaf(1, {3});
      const at::Tensor x = co_await me.peer(1).call<&nested_fragile>(a);
      auto pass = me.spawn(thrown_by(ctx.backward(x.sum(), {.limit = 20s})));
      CHECK(co_await eventually([&] { return door.arrived() == 1; }));
      end(all);
      heard = co_await std::move(pass);
      late = co_await thrown_by(ctx.backward(x.sum(), {.limit = 20s}));
      door.open();
    });
  }));
  door.open();
  CAPTURE(heard.message());
  CHECK(heard == errc::peer_died);
  CHECK(heard.detail().peer == "worker2");
  // The loss ends the run, which may cancel this main before its second pass is over.
  if (late) {
    CAPTURE(late->message());
    CHECK((*late == errc::peer_died || *late == errc::cancelled));
  }
  // Another may have left the run between hearing of the second pass and of its end.
  CHECK(service(all, 0).passes() == 0);
}

TEST_CASE("autograd errors: a worker that is lost in backward is named") {
  check_loss([](workers& all) {
    asio::post(weft::detail::context_of(all.at(2)), [&all] {
      all.at(2).shutdown(weft::error(errc::worker_failed, "it was told to end"));
    });
  });
}

/// In backward the caller loses this worker.
std::function<void()> cut_the_link;
at::Tensor cut_in_backward(const at::Tensor& x) {
  at::Tensor y = x * 1;
  y.register_hook([](const at::Tensor&) { cut_the_link(); });
  return y;
}

TEST_CASE("autograd errors: nodes elsewhere may have run, though the walk here took long") {
  auto goes_on = with_io_threads(0);
  goes_on.on_loss = weft::loss_policy::go_on();
  const auto test = [](workers& all, worker& me) -> asio::awaitable<void> {
    cut_the_link = [&all] {
      asio::post(weft::detail::context_of(all.at(0)),
                 [&all] { all.at(0).link_to(1).mark_down(weft::error(errc::peer_died, "cut")); });
    };
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      at::Tensor y = co_await me.peer(1).call<&cut_in_backward>(leaf(1, {3}));
      for (int i = 0; i < 3000; ++i) y = y * 1.0;
      const auto e = co_await thrown_by(ctx.backward(y.sum()));
      CHECK(e == errc::peer_died);
      CHECK(e.ran() == weft::call_progress::maybe_executed);
    });
  };
  weft::testing::run_workers(2, over::inproc, goes_on, test);
}

// Its own parameter only: in backward nobody waits for a gradient from here.
at::Tensor fragile_parameter() { return fragile::apply(leaf(4, {3})); }
asio::awaitable<at::Tensor> add_far_parameter(worker& me, at::Tensor x) {
  co_return x + co_await me.peer(3).call<&fragile_parameter>();
}
struct far_loss {
  static inline std::atomic<bool> ready{false};
  static inline weft::intrusive_ptr<weft::engine::pass_waiter> waiter;
};
asio::awaitable<void> train_without_link(worker& me) {
  co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
    const at::Tensor y = co_await me.peer(2).call<&add_far_parameter>(leaf(1, {3}));
    CHECK(me.link_to(3).current_state() == weft::link::state::idle);
    auto pass = me.spawn(thrown_by(ctx.backward(y.sum(), {.limit = 20s})));
    CHECK(co_await eventually([&] {
      const std::lock_guard lock(weft::engine::state_of(ctx.state())->mutex);
      if (!weft::engine::state_of(ctx.state())->waiters.empty())
        far_loss::waiter = weft::engine::state_of(ctx.state())->waiters.begin()->second;
      return far_loss::waiter != nullptr;
    }));
    far_loss::ready = true;
    static_cast<void>(co_await std::move(pass));  // the loss ends the run, and may end this first
  });
}

TEST_CASE("autograd errors: an initiator hears of the loss of a worker that it has no link to") {
  for (const over how : {over::tcp, over::inproc}) {
    fragile_door door;
    far_loss::ready = false;
    far_loss::waiter = nullptr;
    weft::options o = with_io_threads(1);
    o.shutdown_deadline = std::chrono::milliseconds(500);  // the door stays closed until then
    workers all(4, how, o);
    static_cast<void>(all.run([&](workers&, worker& me) -> asio::awaitable<void> {
      auto training = me.peer(1).start<&train_without_link>();
      // Worker 3 is in the midst of its node; worker 2 has done its part.
      CHECK(co_await eventually([&] { return door.arrived() == 1; }));
      CHECK(co_await eventually([&] { return far_loss::ready.load(); }));
      for (int i = 0; i < 5; ++i) co_await me.peer(2).call<&nothing>();
      asio::post(weft::detail::context_of(all.at(3)), [&all] {
        all.at(3).shutdown(weft::error(errc::worker_failed, "it was told to end"));
      });
      static_cast<void>(co_await thrown_by(std::move(training).get()));
    }));
    door.open();
    REQUIRE(far_loss::waiter);
    REQUIRE(far_loss::waiter->failure);
    CHECK(far_loss::waiter->failure->reason == weft::autograd::abort_reason::lost);
    CHECK(far_loss::waiter->failure->origin == 3);
    CHECK(far_loss::waiter->over->is_set());
    far_loss::waiter = nullptr;
    CHECK(service(all, 1).passes() == 0);  // what others hold of it goes with the run
  }
}

TEST_CASE("autograd errors: participants forget the contexts of a lost creator") {
  workers all(3, over::tcp, with_io_threads(1));
  std::size_t before = 0;
  static_cast<void>(all.run([&](workers&, worker& me) -> asio::awaitable<void> {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor a = leaf(1, {3});
      static_cast<void>(co_await me.peer(1).call<&nested_fragile>(a));
      before = contexts_everywhere(all);
      // As if this process died: no release is sent.
      for (const std::uint32_t r : {1u, 2u}) {
        me.link_to(r).mark_down(weft::error(errc::peer_died, "the test cut the link"));
      }
      static_cast<void>(ctx);
    });
  }));
  CHECK(before == 3);
  CHECK(contexts_everywhere(all) == 0);
}

}  // namespace autograd_tests
