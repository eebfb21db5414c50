// SPDX-License-Identifier: BSL-1.0
// The waits of autograd, abandoned: for a pass of one's own, and for the outcome of another's.
#include "live_context.hpp"

namespace abandoned_passes {

/// Waits in `backward`: for a node of worker 2, or for one of its own over a message to worker 2.
template <std::uint32_t At>
class for_pass final : public with_context {
 public:
  static constexpr bool of_a_link = At == there;
  static constexpr got_as_far_as went{call_progress::maybe_executed, call_progress::maybe_executed};
  for_pass(over how, unsigned io_threads) : with_context(1, how, io_threads) {}
  asio::awaitable<void> wait(duration limit) {
    const context ctx = *context_;
    co_await ctx.backward(loss_, {.retention = graph_retention::retain, .limit = limit});
    CHECK(same(weft::engine::state_of(ctx.state())->snapshot().find(x_), gradient()));
  }
  [[nodiscard]] bool waits() { return way_.door.arrived() > 0; }
  void check_nothing_left() {
    // Of a pass that was abandoned, nothing is to be seen; or all, if it was over by then.
    on(me(), [this] {
      const at::Tensor got = weft::engine::state_of(context_->state())->snapshot().find(x_);
      CHECK((!got.defined() || same(got, gradient())));
    });
    with_context::check_nothing_left();
  }

 private:
  asio::awaitable<at::Tensor> record(context) override {
    const weft::peer to = other();
    if constexpr (At == there) {
      const at::Tensor y = co_await to.call<&slowly_twice>(x_ * 1);
      co_return y.sum();
    } else {
      const at::Tensor y = co_await to.call<&twice>(x_ * 1);
      co_return slowly_twice(y).sum();
    }
  }
  static at::Tensor gradient() { return at::full({3}, At == there ? 2.0 : 4.0); }

  const at::Tensor x_ = leaf(4, {3});
};

/// Waits in `gradients`.
class for_outcome final : public with_outcome {
 public:
  static constexpr got_as_far_as went{call_progress::not_sent, call_progress::not_executed,
                                      call_progress::not_executed};
  using with_outcome::with_outcome;

 private:
  asio::awaitable<void> look() override {
    const auto gradients = co_await way_.joined->gradients();
    CHECK(same(gradients.find(way_.weight), x_.detach()));
  }
};

TEST_CASE_TEMPLATE("abandoned: a backward pass", W, for_pass<2>, for_pass<1>) { abandon_live<W>(); }
TEST_CASE_TEMPLATE("abandoned: gradients whose pass is not over", W, for_outcome) {
  abandon_live<W>();
}

}  // namespace abandoned_passes
