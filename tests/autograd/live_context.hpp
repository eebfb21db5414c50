// SPDX-License-Identifier: BSL-1.0
// An autograd context that stays open while waits in it are abandoned.
#pragma once

#include "service_functions.hpp"
#include <weft/autograd/service.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/event.hpp>
#include <weft/engine/services/context_state.hpp>
#include <weft/engine/worker/worker.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <rpc/live_abandoned.hpp>
#include <vector>

namespace abandoned_passes {

using namespace autograd_tests;
using weft::call_progress;
using weft::duration;
using weft::event;
using weft::options;
using weft::autograd::this_context;

/// What the nodes of one way wait for, and what its functions leave.
struct passage {
  gate door;
  std::atomic<int> left{0};
  const at::Tensor weight = leaf(3, {3});
  std::optional<context> joined;  // of worker 1, whose thread writes and reads it
};
inline std::atomic<passage*> the_passage{nullptr};

/// y = 2x; its backward waits at the door.
struct slow_node : torch::autograd::Function<slow_node> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list g) {
    passage& way = *the_passage.load();
    way.door.pass();
    ++way.left;
    return {g[0] * 2};
  }
};
inline at::Tensor slowly_twice(const at::Tensor& x) { return slow_node::apply(x); }
inline asio::awaitable<at::Tensor> weigh(worker& me, at::Tensor x) {
  the_passage.load()->joined = this_context(me);
  co_return x* the_passage.load()->weight;
}

inline options two_at_once(unsigned io_threads) {
  options o = with_io_threads(io_threads);
  o.compute_threads = 2;
  return o;
}
/// Of received tensors.
inline std::uint64_t held_bytes(worker& at) {
  return static_cast<weft::engine::worker&>(at).memory()->used();
}

/// A context that stays open at one worker until the end, whatever becomes of its passes.
class with_context : public live_scene<weft::rref_service, autograd_service> {
 public:
  with_context(std::uint32_t home, over how, unsigned io_threads)
      : live_scene(how, two_at_once(io_threads)), home_(home) {
    the_passage = &way_;
  }
  virtual ~with_context() { way_.door.open(); }
  void prepare() {
    on(home(), [this] { keeps_ = home().spawn(keep_open()); });
    until("the loss is computed", [this] { return ready_.load(); });
  }
  void complete() { way_.door.open(); }
  [[nodiscard]] bool arrives() const { return way_.left > 0; }
  /// A step in a context of its own.
  asio::awaitable<void> again() {
    const at::Tensor x = leaf(5, {3});
    co_await weft::autograd::with_context(me(), [&](context ctx) -> asio::awaitable<void> {
      const weft::peer to = other();
      const at::Tensor y = co_await to.call<&slowly_twice>(x * 3);
      co_await ctx.backward(y.sum());
      CHECK(same((co_await ctx.gradients()).find(x), at::full({3}, 6.0)));
    });
  }
  void check_nothing_left() {
    live_scene::check_nothing_left();
    check_gone();
  }
  std::vector<weft::error> finish() {
    check_gone();
    return live_scene::finish();
  }

 protected:
  /// The loss, recorded in `ctx` at the context's home.
  virtual asio::awaitable<at::Tensor> record(context ctx) = 0;
  /// What is done with it there before the context stays open.
  virtual asio::awaitable<void> use(const context&) { co_return; }

  [[nodiscard]] worker& home() { return all().at(home_); }
  [[nodiscard]] autograd_service& service_at(std::uint32_t rank) {
    return all().at(rank).use<autograd_service>();
  }
  /// No pass, then no context and no tensor's memory, anywhere.
  void check_gone() {
    using state = weft::link::state;
    const bool lost = me().link_to(there).current_state() == state::down;
    const auto everywhere = [this, lost](auto none) {
      for (std::uint32_t r = 0; r < all().size(); ++r) {
        if (!(lost && r == there) && !none(r)) return false;
      }
      return true;
    };
    way_.door.open();
    if (lost) {
      until("that one is left behind",
            [this] { return all().at(0).link_to(there).current_state() == state::down; });
    }
    until("no pass is left", [&] {
      return everywhere([this](std::uint32_t r) { return service_at(r).passes() == 0; });
    });
    if (!lost || home_ != there) {
      on(home(), [this] {
        context_.reset();
        loss_.reset();
      });
    }
    on(me(), [this] { way_.joined.reset(); });
    close_->set();
    until("no context is left", [&] {
      return everywhere([this](std::uint32_t r) { return service_at(r).contexts() == 0; });
    });
    until("no memory of tensors is held", [&] {
      return everywhere([this](std::uint32_t r) { return held_bytes(all().at(r)) == 0; });
    });
  }

  passage way_;
  std::optional<context> context_;  // these two: of the home's thread
  at::Tensor loss_;

 private:
  asio::awaitable<void> keep_open() {
    co_await weft::autograd::with_context(home(), [this](context ctx) -> asio::awaitable<void> {
      loss_ = co_await record(ctx);
      context_ = ctx;
      ready_ = true;
      co_await use(ctx);
      co_await event::async_wait(close_, asio::use_awaitable);
    });
  }

  const std::uint32_t home_;
  const weft::intrusive_ptr<event> close_ = weft::make_intrusive<event>();
  std::atomic<bool> ready_{false};
  weft::future<void> keeps_;
};

/// A pass that worker 2 has begun, whose own node is under way there; worker 1, which waits to know
/// what becomes of it, has done its part.
class with_outcome : public with_context {
 public:
  static constexpr weft::errc lost = errc::autograd_context_gone;
  with_outcome(over how, unsigned io_threads) : with_context(2, how, io_threads) {}
  void prepare() {
    with_context::prepare();
    until("worker 1 has done its part", [this] {
      const auto state = on(me(), [this] { return weft::engine::state_of(way_.joined->state()); });
      const std::lock_guard lock(state->mutex);
      return state->outcome_pending();
    });
  }
  asio::awaitable<void> wait(duration limit) {
    const auto within = weft::make_intrusive<weft::call_scope>();
    within->deadline = me().time().now() + limit;
    co_await weft::with_scope(weft::detail::context_of(me()), within, look());
  }
  [[nodiscard]] bool waits() {
    const auto state = on(me(), [this] { return weft::engine::state_of(way_.joined->state()); });
    const std::lock_guard lock(state->mutex);
    return state->pass_over != nullptr;
  }

 protected:
  virtual asio::awaitable<void> look() = 0;

  const at::Tensor x_ = leaf(4, {3});  // the gradient of `way_.weight`

 private:
  asio::awaitable<at::Tensor> record(context) override {
    // Nodes run latest first: what leads to worker 1 before the one that waits.
    const at::Tensor last = slowly_twice(x_).sum();
    const weft::peer to = home().peer(1);
    const at::Tensor y = co_await to.call<&weigh>(x_ * 1);
    co_return last + y.sum();
  }
  asio::awaitable<void> use(const context& ctx) override {
    static_cast<void>(co_await thrown_by(ctx.backward(loss_)));
  }
};

}  // namespace abandoned_passes
