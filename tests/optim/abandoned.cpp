// SPDX-License-Identifier: BSL-1.0
// The waits of optimizers, abandoned: of `create` for a parameter that is being made, of a step for
// its turn, for its computation, and for the outcome of a pass.
#include <weft/core/call_scope.hpp>
#include <weft/optim/distributed.hpp>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <array>
#include <autograd/live_context.hpp>
#include <cstdint>
#include <utility>
#include <vector>

namespace abandoned_steps {

using namespace abandoned_passes;
using weft::optim::detail::write_turn;

/// Waits at the door. Subtracts the gradient.
class slow_sgd : public torch::optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    passage& way = *the_passage.load();
    way.door.pass();
    ++way.left;
    return SGD::step(std::move(closure));
  }
};

}  // namespace abandoned_steps

template <>
struct weft::optim::optimizer_traits<abandoned_steps::slow_sgd> {
  using options = torch::optim::SGDOptions;
  static constexpr weft::fixed_string name{"abandoned_steps::slow_sgd"};
};

namespace abandoned_steps {

using sgd = weft::optim::distributed<torch::optim::SGD>;
using slow = weft::optim::distributed<slow_sgd>;
const torch::optim::SGDOptions& at_rate_one() {
  static const torch::optim::SGDOptions it(1.0);
  return it;
}

at::Tensor late_weight() {
  passage& way = *the_passage.load();
  way.door.pass();
  ++way.left;
  return way.weight;
}
weft::immediate<at::Tensor> the_weight() { return the_passage.load()->weight; }
at::Tensor weighed(const at::Tensor& x) { return x * the_passage.load()->weight; }

constexpr std::array<std::pair<over, unsigned>, 2> two_ways = {{{over::inproc, 0}, {over::tcp, 1}}};

template <class Scene>
void check_idle(Scene& scene) {
  until("no call to itself waits",
        [&] { return on(scene.me(), [&] { return calls_waiting(scene.me(), 1) == 0; }); });
  until("no reference is left", [&] {
    for (std::uint32_t r = 0; r < scene.all().size(); ++r) {
      if (!scene.all().at(r).template use<weft::rref_service>().idle()) return false;
    }
    return true;
  });
}

/// Waits in `create`: member `At` makes the parameter.
template <std::uint32_t At>
class for_parameter final : public live_scene<weft::rref_service, autograd_service> {
 public:
  static constexpr auto ways = two_ways;
  static constexpr bool of_a_link = At == there;
  static constexpr got_as_far_as went{call_progress::maybe_executed, call_progress::maybe_executed};
  for_parameter(over how, unsigned io_threads) : live_scene(how, two_at_once(io_threads)) {
    the_passage = &way_;
  }
  ~for_parameter() { way_.door.open(); }
  void prepare() {
    on(me(), [this] { weight_ = me().peer(At).template remote<&late_weight>(); });
    until("it is being made", [this] { return way_.door.arrived() == 1; });
  }
  asio::awaitable<void> wait(duration limit) {
    const auto within = weft::make_intrusive<weft::call_scope>();
    within->deadline = me().time().now() + limit;
    co_await weft::with_scope(weft::detail::context_of(me()), within, make());
  }
  [[nodiscard]] bool waits() { return calls_for_it() > 0; }
  void complete() { way_.door.open(); }
  [[nodiscard]] bool arrives() const { return way_.left > 0; }
  asio::awaitable<void> again() { return make(); }
  void check_nothing_left() {
    live_scene::check_nothing_left();
    until("no call waits for the parameter", [this] { return calls_for_it() == 0; });
    on(me(), [this] { weight_ = {}; });
    check_idle(*this);
  }

 private:
  asio::awaitable<void> make() {
    const sgd made = co_await sgd::create(me(), {weight_}, at_rate_one());
    CHECK(made.size() == 1);
  }
  [[nodiscard]] std::uint64_t calls_for_it() {
    return all().at(At).template use<weft::rref_service>().counters().waiting;
  }

  passage way_;
  rref<at::Tensor> weight_;  // of worker 1's thread
};

/// An optimizer of worker 1 for a parameter of member `At`, and a context whose gradient is there.
template <std::uint32_t At>
class with_optimizer : public with_context {
 public:
  static constexpr auto ways = two_ways;
  static constexpr bool of_a_link = At == there;
  static constexpr weft::errc lost = errc::rref_owner_died;
  static constexpr got_as_far_as went{call_progress::maybe_executed, call_progress::maybe_executed};
  with_optimizer(over how, unsigned io_threads) : with_context(1, how, io_threads) {}
  void prepare() {
    optimizer_ = result_on(me(), make());
    with_context::prepare();
  }
  asio::awaitable<void> wait(duration limit) {
    co_await optimizer_.step(*context_, weft::within(limit));
    ++returned_;
  }
  /// A step in a context of its own.
  asio::awaitable<void> again() {
    co_await weft::autograd::with_context(me(), [this](context ctx) -> asio::awaitable<void> {
      static_cast<void>(co_await record(ctx));
      co_await optimizer_.step(ctx);
    });
  }
  /// The parameter has made that last step, the abandoned one wholly or not at all.
  void check_nothing_left() {
    with_context::check_nothing_left();
    on(me(), [this] { optimizer_ = {}; });
    check_idle(*this);
    const at::Tensor moved = leaf(3, {3}).detach() - way_.weight.detach();
    const int steps = moved[0].item<int>();
    CHECK(same(moved, at::full({3}, static_cast<double>(steps))));
    CHECK(steps >= 1 + returned_);
    CHECK(steps <= 2);
  }

 private:
  asio::awaitable<slow> make() {
    const rref<at::Tensor> weight = me().peer(At).template remote<&the_weight>();
    co_return co_await slow::create(me(), {weight}, at_rate_one());
  }
  /// The gradient is one.
  asio::awaitable<at::Tensor> record(context ctx) override {
    at::Tensor y = at::ones({3});
    if constexpr (At == there) {
      const weft::peer to = other();
      y = co_await to.call<&weighed>(y);
    } else {
      y = weighed(y);
    }
    const at::Tensor loss = y.sum();
    co_await ctx.backward(loss);
    co_return loss;
  }

  slow optimizer_;  // of worker 1's thread
  int returned_ = 0;
};

/// Behind the test, which has the turn to write.
template <std::uint32_t At>
class behind_another : public with_optimizer<At> {
 public:
  using with_optimizer<At>::with_optimizer;
  void prepare() {
    with_optimizer<At>::prepare();
    const std::vector<const void*> memory{this->way_.weight.storage().unsafeGetStorageImpl()};
    turn_ = weft::make_intrusive<write_turn>(memory);
    before_ = there_now().stats().served;
  }

 protected:
  /// The step has come and heard that it is not its turn, and the coroutine that waits for it,
  /// which has a deadline, has begun.
  [[nodiscard]] bool waits_for_turn() {
    return there_now().stats().served > before_ + 1 &&
           on(there_now(), [this] { return !engine_worker(there_now()).deadlines().empty(); });
  }
  void give_turn() { turn_ = nullptr; }
  [[nodiscard]] worker& there_now() { return this->all().at(At); }

 private:
  weft::intrusive_ptr<write_turn> turn_;
  std::uint64_t before_ = 0;
};

/// Waits for its turn to write.
template <std::uint32_t At>
class for_turn final : public behind_another<At> {
 public:
  using behind_another<At>::behind_another;
  void prepare() {
    this->way_.door.open();
    behind_another<At>::prepare();
  }
  [[nodiscard]] bool waits() { return this->waits_for_turn(); }
  void complete() { this->give_turn(); }
  /// It has come to the optimizer, or its time was over there; here it is to go on on the thread
  /// that is held.
  [[nodiscard]] bool arrives() {
    return At == 1 || this->way_.left > 0 || on(this->there_now(), [this] {
             return engine_worker(this->there_now()).deadlines().empty();
           });
  }
};

/// Waits until the optimizer has computed.
template <std::uint32_t At>
class for_computation final : public with_optimizer<At> {
 public:
  using with_optimizer<At>::with_optimizer;
  [[nodiscard]] bool waits() { return this->way_.door.arrived() > 0; }
};
/// ... in its turn, by a job of the pool that the call does not live as long as.
template <std::uint32_t At>
class for_computation_in_turn final : public behind_another<At> {
 public:
  using behind_another<At>::behind_another;
  [[nodiscard]] bool waits() {
    if (!given_) {
      if (!this->waits_for_turn()) return false;
      given_ = true;
      this->give_turn();
    }
    return this->way_.door.arrived() > 0;
  }
  void complete() {
    this->give_turn();
    behind_another<At>::complete();
  }

 private:
  bool given_ = false;
};

/// Waits for what becomes of worker 2's pass, whose gradient a step of worker 1 may use or not.
class for_settled final : public with_outcome {
 public:
  static constexpr auto ways = two_ways;
  /// What is lost is met by a function: the one that waits at worker 1.
  static constexpr got_as_far_as went{call_progress::maybe_executed, call_progress::executed,
                                      call_progress::executed};
  using with_outcome::with_outcome;
  void prepare() {
    const std::vector<at::Tensor> weights{way_.weight};
    optimizer_ = result_on(me(), sgd::create(me(), weights, at_rate_one()));
    with_outcome::prepare();
  }
  asio::awaitable<void> again() {
    co_await weft::autograd::with_context(me(), [this](context ctx) -> asio::awaitable<void> {
      co_await ctx.backward(way_.weight.sum());
      co_await optimizer_.step(ctx);
    });
  }
  void check_nothing_left() {
    with_outcome::check_nothing_left();
    on(me(), [this] { optimizer_ = {}; });
    check_idle(*this);
    const at::Tensor moved = leaf(3, {3}).detach() - way_.weight.detach() - 1;
    CHECK((same(moved, at::zeros({3})) || same(moved, x_.detach())));
  }

 private:
  asio::awaitable<void> look() override { return optimizer_.step(*way_.joined); }

  sgd optimizer_;  // of worker 1's thread
};

TEST_CASE_TEMPLATE("abandoned: an optimizer's creation", W, for_parameter<2>, for_parameter<1>) {
  abandon_live<W>();
}
TEST_CASE_TEMPLATE("abandoned: an optimizer's step", W, for_turn<2>, for_turn<1>,
                   for_computation<2>, for_computation<1>, for_computation_in_turn<2>,
                   for_computation_in_turn<1>, for_settled) {
  abandon_live<W>();
}

}  // namespace abandoned_steps
