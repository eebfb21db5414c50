// SPDX-License-Identifier: BSL-1.0
// A tensordict: made, indexed, sent to another worker and back, with gradients. Prints:
//
//   TensorDict(batch_size=[3], fields={next: {reward: f32[]}, obs: f32[2]})
//   the last two steps: TensorDict(batch_size=[2], fields={next: {reward: f32[]}, obs: f32[2]})
//   worker 1 says: TensorDict(batch_size=[3], fields={action: f32[], value: f32[]})
//   gradient of obs: 2 2
#include <weft/run.hpp>
#include <weft/tensordict/codec.hpp>

#include <ATen/ATen.h>

#include <iostream>

// [act]
/// An actor at another worker: from observations to actions, and what they are worth.
weft::tensordict act(weft::tensordict steps) {
  const at::Tensor obs = steps["obs"];
  return {{{"action", obs.argmax(-1).to(at::kFloat)}, {"value", obs.sum(-1) * 2}},
          steps.batch_size()};
}
// [end]

// [steps]
weft::tensordict three_steps() {
  weft::tensordict steps({{"obs", at::ones({3, 2})}, {"next", {{"reward", at::zeros({3})}}}}, {3});
  steps["next"]["reward"] = at::arange(3, at::kFloat);
  std::cout << steps << '\n';
  std::cout << "the last two steps: " << steps.index({at::indexing::Slice(1)}) << '\n';
  return steps;
}
// [end]

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::tensordict steps = three_steps();
  steps["obs"]->requires_grad_(true);
  co_await weft::autograd::with_context(
      me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
        const weft::tensordict said = co_await me.peer(1).call<&act>(steps);
        std::cout << "worker 1 says: " << said << '\n';
        co_await ctx.backward(said["value"]->sum());
        const at::Tensor g = (co_await ctx.gradients()).find(steps["obs"]);
        std::cout << "gradient of obs: " << g[0][0].item<float>() << ' ' << g[0][1].item<float>()
                  << '\n';
      });
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
