// SPDX-License-Identifier: BSL-1.0
// What a user does by mistake gets a typed error in the user's words, where it was done; the link
// and the run go on.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>

#include <limits>

namespace autograd_tests {

/// What libtorch's own backward throws.
std::string thrown_by_libtorch(const at::Tensor& root) {
  try {
    root.backward();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

// ── tensors of another context ──

TEST_CASE("autograd slip: a tensor that another context recorded is refused") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3});
    at::Tensor state = x;
    for (int step = 0; step < 3; ++step) {  // a forgotten detach()
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        state = co_await me.peer(1).call<&twice>(state);
        const auto e = co_await thrown_by(ctx.backward(state.sum()));
        if (step == 0) {
          CHECK_FALSE(e);
          co_return;
        }
        CAPTURE(e.message());
        CHECK(e == errc::invalid_argument);
        CHECK(says(e, "another autograd context"));
        CHECK(says(e, "detach"));
        CHECK((co_await ctx.gradients()).empty());
        // The context is as good as before.
        const at::Tensor y = co_await me.peer(1).call<&twice>(x);
        co_await ctx.backward(y.sum());
        CHECK(same((co_await ctx.gradients()).find(x), at::full({3}, 2.0)));
      });
    }
    co_await me.peer(1).call<&nothing>();
    CHECK(co_await all_forgotten(all));
  });
}

/// Keeps what it is given from call to call, with its history.
class forgetful {
 public:
  at::Tensor step(const at::Tensor& x) {
    kept_ = kept_.defined() ? kept_ + x : x * 1;
    return kept_ * 2;
  }

 private:
  at::Tensor kept_;
};

TEST_CASE("autograd slip: so it is where another worker kept the tensor") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3});
    const auto cell = me.peer(1).make<forgetful>();
    for (int step = 0; step < 3; ++step) {
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor y = co_await cell.call<&forgetful::step>(x);
        const auto e = co_await thrown_by(ctx.backward(y.sum()));
        if (step == 0) {
          CHECK_FALSE(e);
          co_return;
        }
        CAPTURE(e.message());
        CHECK(e == errc::invalid_argument);
        CHECK(e.detail().peer == "worker1");
        CHECK(says(e, "another autograd context"));
        CHECK((co_await ctx.gradients()).empty());
      });
    }
    co_await me.peer(1).call<&nothing>();
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd slip: two contexts that are open at once do not mix") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3});
    at::Tensor of_first;
    auto first =
        me.spawn(weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
          of_first = co_await me.peer(1).call<&twice>(x);
          co_await ctx.backward(of_first.sum(), {.retention = graph_retention::retain});
          CHECK(same((co_await ctx.gradients()).find(x), at::full({3}, 2.0)));
        }));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      CHECK(co_await eventually([&] { return of_first.defined(); }));
      const at::Tensor y = co_await me.peer(1).call<&mul>(x, of_first);
      const auto e = co_await thrown_by(ctx.backward(y.sum()));
      CHECK(e == errc::invalid_argument);
      CHECK(says(e, "another autograd context"));
    });
    co_await std::move(first);
    CHECK(co_await all_forgotten(all));
  });
}

// ── calls in a context that is gone ──

TEST_CASE("autograd slip: a call whose scope has ended says so") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3});
    weft::future<weft::error> late;
    bool ended = false;
    const auto body = [&]() -> asio::awaitable<weft::error> {
      CHECK(co_await eventually([&] { return ended; }));
      co_return co_await thrown_by(me.peer(1).call<&twice>(x));
    };
    co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
      late = me.spawn(body());
      co_return;
    });
    ended = true;
    const auto e = co_await std::move(late);
    CAPTURE(e.message());
    CHECK(e == errc::autograd_context_gone);
    CHECK(e.ran() == weft::call_progress::not_sent);
    co_await me.peer(1).call<&nothing>();
    CHECK(co_await all_forgotten(all));
  });
}

// ── roots ──

TEST_CASE("autograd slip: a complex root needs a gradient, as in libtorch") {
  run_workers(1, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor z = leaf(1, {1}, at::kComplexFloat);
    CHECK_FALSE(thrown_by_libtorch((z * z).sum()).empty());
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const auto e = co_await thrown_by(ctx.backward((z * z).sum()));
      CHECK(e == errc::invalid_argument);
      CHECK(says(e, "complex"));
      CHECK((co_await ctx.gradients()).empty());
      co_await ctx.backward((z * z).sum(), {.gradients = {at::ones({}, at::kComplexFloat)}});
      CHECK((co_await ctx.gradients()).size() == 1);
    });
  });
}

// ── a forgotten scope ──

TEST_CASE("autograd slip: outside of any context, what had a history refuses to be trained") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const auto layer = me.peer(1).make<pair_of_parameters>(1);
    const at::Tensor x = leaf(2, {3, 3});
    for (const bool here : {false, true}) {
      const at::Tensor y = co_await (here ? me.peer(0).call<&add>(x, x)
                                          : layer.call<&pair_of_parameters::use_first>(x.detach()));
      CHECK(y.requires_grad());
      const std::string said = thrown_by_libtorch((y * 2).sum());
      CAPTURE(said);
      CHECK(said.find("autograd::with_context") != std::string::npos);
      CHECK(said.find("detach") != std::string::npos);
      // And from inside a context that was opened too late.
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const auto e = co_await thrown_by(ctx.backward(y.sum()));
        CAPTURE(e.message());
        CHECK(e == errc::invalid_argument);
        CHECK(says(e, "with_context"));
        CHECK((co_await ctx.gradients()).empty());
      });
      y.detach().add_(1);
    }
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd slip: outside of any context, a leaf arrives as a leaf, and nothing is lost") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto layer = me.peer(1).make<pair_of_parameters>(1);
    const at::Tensor w = co_await layer.call<&pair_of_parameters::first>();
    CHECK(w.is_leaf());
    CHECK(w.requires_grad());
    const at::Tensor copy = w.detach().clone().set_requires_grad(true);
    (copy * copy).sum().backward();
    (copy * copy).sum().backward();
    CHECK(same(copy.grad(), copy.detach() * 4));
    const at::Tensor plain = co_await me.peer(1).call<&add>(at::ones({2}), at::ones({2}));
    CHECK_FALSE(plain.requires_grad());
    CHECK(co_await me.peer(1).call<&is_leaf>(leaf(1, {2})));
    CHECK(co_await me.peer(1).call<&requires_grad>(leaf(1, {2})));
  });
}

TEST_CASE("autograd slip: with recording off, outside of any context, nothing requires grad") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto layer = me.peer(1).make<pair_of_parameters>(1);
    const at::Tensor x = leaf(2, {3, 3});
    const auto off = [&](auto call) {
      return weft::with_grad_mode(me, weft::grad_mode::off, std::move(call));
    };
    const at::Tensor y = co_await off(layer.call<&pair_of_parameters::use_first>(x));
    CHECK_FALSE(y.requires_grad());
    CHECK(y.is_leaf());
    CHECK_FALSE((co_await off(layer.call<&pair_of_parameters::first>())).requires_grad());
    CHECK_FALSE((co_await off(me.peer(0).call<&add>(x, x))).requires_grad());
    CHECK((co_await layer.call<&pair_of_parameters::use_first>(x)).requires_grad());
  });
}

}  // namespace autograd_tests
