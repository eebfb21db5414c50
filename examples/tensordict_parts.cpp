// SPDX-License-Identifier: BSL-1.0
// What a tensordict has beside tensors, and what one does with it: a struct, data, episodes of
// different lengths, one buffer in a call, the parameters of a module. Prints:
//
//   TensorDict(batch_size=[2], fields={action: i64[], obs: f32[4], task: str})
//   first: lift the cup, obs [4]
//   episodes of 12 and 80 steps; obs of the second: [80, 4]
//   the sum of 100 tensors, sent as one: 4950
//   averaged: 0, before and after: 2
#include <weft/run.hpp>
#include <weft/tensordict/codec.hpp>
#include <weft/tensordict/module.hpp>
#include <weft/tensordict/ops.hpp>
#include <weft/tensordict/struct.hpp>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <iostream>
#include <string>

// [struct]
struct step {
  at::Tensor obs, action;
  std::string task;
};
void a_struct() {
  const step two{at::ones({2, 4}), at::zeros({2}, at::kLong), "lift the cup"};
  const weft::tensordict td = weft::from_struct(two, {2});  // tensors are shared, not copied
  std::cout << td << '\n';
  const auto first = weft::to_struct<step>(td[0]);
  std::cout << "first: " << first.task << ", obs " << first.obs.sizes() << '\n';
}
// [end]

// [episodes]
weft::tensordict episode(std::int64_t steps) {
  return weft::tensordict({{"obs", at::rand({steps, 4})}});
}
void of_different_lengths() {
  const weft::lazy_stack episodes({episode(12), episode(80)});
  const weft::tensordict td({{"episodes", episodes}, {"run", weft::non_tensor(7)}}, {2});
  const weft::tensordict second = td[1]["episodes"];  // an element of the batch
  std::cout << "episodes of " << td.tensor({"episodes", "0", "obs"}).size(0) << " and "
            << second["obs"]->size(0) << " steps; obs of the second: " << second["obs"]->sizes()
            << '\n';
}
// [end]

// [sum]
/// Of all tensors.
double sum_of(weft::tensordict td) {
  double sum = 0;
  for (const auto& [key, t] : td.leaves()) sum += t.sum().item<double>();
  return sum;
}
asio::awaitable<void> as_one_buffer(weft::peer to) {
  weft::tensordict td;
  for (int i = 0; i < 100; ++i) td.set(std::to_string(i), at::full({1}, i));
  const double sum = co_await to.call<&sum_of>(td.consolidate());
  std::cout << "the sum of 100 tensors, sent as one: " << sum << '\n';
}
// [end]

// [module]
void parameters() {
  torch::nn::Linear net(2, 1);
  const at::NoGradGuard none;
  weft::load_into(*net, weft::tensordict({{"weight", at::ones({1, 2})}, {"bias", at::zeros({1})}}));
  const at::Tensor in = at::ones({1, 2});
  const float before = net(in).item<float>();
  const weft::tensordict averaged = weft::from_module(*net) * 0;
  float within = 0;
  {
    const auto swapped = weft::to_module(averaged, *net);
    within = net(in).item<float>();
  }  // the module has its own tensors again
  std::cout << "averaged: " << within
            << ", before and after: " << (before + net(in).item<float>()) / 2 << '\n';
}
// [end]

int main() {
  return weft::run<weft::unix_socket, weft::tcp>(
      [](weft::worker& me) -> asio::awaitable<void> {
        if (me.rank() != 0) co_return;
        a_struct();
        of_different_lengths();
        co_await as_one_buffer(me.peer(1));
        parameters();
      },
      weft::options{.workers = 2});
}
