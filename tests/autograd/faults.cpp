// SPDX-License-Identifier: BSL-1.0
// What is thrown at any point of a pass, of whatever type, ends as the caller's error: nobody waits
// for ever, nothing is kept, and the next step works.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>
#include <weft/engine/services/context_state.hpp>

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function_hook.h>

#include <new>

namespace autograd_tests {

/// Not a std::exception, as users' types may be.
struct odd_error {
  int why = 0;
};
enum class thrown : std::uint8_t { bad_alloc, torch_error, users_type };

/// Counts points of a pass, in all workers, and throws at one of them.
struct fault {
  static inline std::atomic<int> left{0};  ///< points that still pass; at zero it throws
  static inline std::atomic<bool> armed{false};
  static inline std::atomic<thrown> what{thrown::bad_alloc};

  static void point() {
    if (!armed || left.fetch_sub(1) != 0) return;
    switch (what.load()) {
    case thrown::bad_alloc:
      throw std::bad_alloc();
    case thrown::torch_error:
      TORCH_CHECK(false, "libtorch will not");
    case thrown::users_type:
      throw odd_error{7};
    }
  }
  static void arm(thrown type, int at) {
    what = type;
    left = at;
    armed = true;
  }
};

/// y = 2x; a point in its backward, before and after it computes.
struct faulty : torch::autograd::Function<faulty> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list g) {
    fault::point();
    const at::Tensor out = g[0] * 2;
    fault::point();
    return {out};
  }
};
at::Tensor with_hooks(const at::Tensor& t) {
  if (t.requires_grad()) {
    t.register_hook([](const at::Tensor& g) {
      fault::point();
      return g;
    });
  }
  return t;
}
/// A parameter with a hook, a node and a message to somebody else on the way.
class faulty_layer {
 public:
  explicit faulty_layer(int seed) : weight_(with_hooks(leaf(seed, {3}))) {}
  asio::awaitable<at::Tensor> forward(worker& me, at::Tensor x) {
    at::Tensor h = faulty::apply(x * weight_);
    if (me.rank() == 1) h = co_await me.peer(2).call<&add>(h, with_hooks(h * 1));
    co_return with_hooks(h);
  }
  at::Tensor weight() { return weight_; }

 private:
  at::Tensor weight_;
};

/// Tensors that live on are counted by what frees them.
std::shared_ptr<int> counted() { return std::make_shared<int>(0); }
at::Tensor counted_ones(const std::shared_ptr<int>& held) {
  return at::from_blob(
      new float[3]{1, 1, 1}, {3}, [held](void* p) { delete[] static_cast<float*>(p); },
      at::TensorOptions());
}

TEST_CASE("autograd faults: whatever a node or a hook throws, anywhere, the next step works") {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    int points = 0;
    run_workers(
        3, how, with_io_threads(io_threads),
        [&](workers& all, worker& me) -> asio::awaitable<void> {
          const auto layer = me.peer(1).make<faulty_layer>(1);
          const auto weight = layer.remote<&faulty_layer::weight>();
          const auto held = counted();
          const auto step = [&](const std::function<void()>& before)
              -> asio::awaitable<std::pair<weft::error, at::Tensor>> {
            const at::Tensor x = with_hooks(leaf(2, {3}));
            const at::Tensor given = counted_ones(held);
            co_return co_await weft::autograd::with_context(
                me, [&](context ctx) -> asio::awaitable<std::pair<weft::error, at::Tensor>> {
                  const at::Tensor y = co_await layer.call<&faulty_layer::forward>(x);
                  before();
                  const auto e = co_await thrown_by(
                      ctx.backward(faulty::apply(y), {.gradients = {given}, .limit = 30s}));
                  fault::armed = false;
                  CHECK(co_await eventually([&] { return passes_everywhere(all) == 0; }));
                  {
                    const std::lock_guard lock(weft::engine::state_of(ctx.state())->mutex);
                    CHECK(weft::engine::state_of(ctx.state())->waiters.empty());
                  }
                  const auto gradients = co_await ctx.gradients();
                  CHECK(gradients.empty() == bool(e));
                  CHECK(same(given, at::ones({3})));
                  co_return std::pair(e, co_await weight.call<&gradient_of>());
                });
          };
          const auto [no_error, good] = co_await step([] {});
          REQUIRE_FALSE(no_error);
          for (const thrown type : {thrown::bad_alloc, thrown::torch_error, thrown::users_type}) {
            bool threw = true;
            for (int at = 0; threw && at < 100; ++at) {
              REQUIRE(at < 100);
              CAPTURE(at);
              const auto [e, gradient] = co_await step([&] { fault::arm(type, at); });
              CAPTURE(e.message());
              threw = bool(e);
              if (!threw) {
                CHECK(same(gradient, good));
                break;
              }
              ++points;
              CHECK(e == errc::autograd_pass_aborted);
              CHECK_FALSE(gradient.defined());
              const char* const words = type == thrown::bad_alloc     ? "bad_alloc"
                                        : type == thrown::torch_error ? "libtorch will not"
                                                                      : "unknown type";
              CHECK(e.message().find(words) != std::string::npos);
              CHECK(co_await all_forgotten(all));
              const auto [next_error, next] = co_await step([] {});
              CHECK_FALSE(next_error);
              CHECK(same(next, good));
            }
          }
          CHECK(co_await all_forgotten(all));
          CHECK(co_await eventually([&] { return held.use_count() == 1; }));
        });
    CHECK(points >= 3 * 6);
  }
}

TEST_CASE("autograd faults: what is thrown while the roots are looked at leaves nothing") {
  run_workers(1, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(2, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor meta = at::ones({}, at::TensorOptions().device(at::kMeta)).requires_grad_();
      static_cast<void>(co_await thrown_by(ctx.backward(meta * 2)));
      CHECK(passes_everywhere(all) == 0);
      co_await ctx.backward(x.sum());
      CHECK(same((co_await ctx.gradients()).find(x), at::ones({3})));
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd faults: a message that was not sent is not waited for") {
  run_workers(
      2, over::tcp, with_io_threads(0), [](workers& all, worker& me) -> asio::awaitable<void> {
        const at::Tensor x = leaf(2, {3});
        co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
          const auto recorded = [&] {
            const std::lock_guard lock(weft::engine::state_of(ctx.state())->mutex);
            return weft::engine::state_of(ctx.state())->sends.size();
          };
          const at::Tensor y = co_await me.peer(1).call<&twice>(x);
          CHECK(recorded() == 1);
          // Recorded first, then found to be too large for one frame.
          const std::vector<at::Tensor> too_many = [&] {
            std::vector<at::Tensor> out{x * 1};
            for (int i = 0; i < 17000; ++i) out.push_back(at::ones({3}));
            return out;
          }();
          const auto e = co_await thrown_by(me.peer(1).call<&stack>(too_many));
          CAPTURE(e.message());
          CHECK(e);
          CHECK(recorded() == 1);
          // Views of one storage fit in a frame; their gradients would not.
          std::vector<at::Tensor> views;
          const at::Tensor whole = (leaf(3, {17000}) * 1);
          for (int i = 0; i < 17000; ++i) views.push_back(whole.narrow(0, i, 1));
          const auto refused = co_await thrown_by(me.peer(1).call<&stack>(views));
          CAPTURE(refused.message());
          CHECK(refused == errc::not_encodable);
          CHECK(recorded() == 1);
          co_await ctx.backward(y.sum());
          CHECK(same((co_await ctx.gradients()).find(x), at::full({3}, 2.0)));
        });
        CHECK(co_await all_forgotten(all));
      });
}

}  // namespace autograd_tests
