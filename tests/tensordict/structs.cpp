// SPDX-License-Identifier: BSL-1.0
// Plain structs as tensordicts, and modules.
#include <weft/tensordict/module.hpp>
#include <weft/tensordict/struct.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tensordict/checks.hpp>

namespace tensordict_structs {

using weft::tensordict;
using weft::tensordict_errc;
using weft::testing::refused;

struct inner {
  at::Tensor reward;
  bool last = false;
};
struct step {
  at::Tensor obs, action_2;
  std::string task;
  float scale = 0;
  std::uint8_t lives = 0;
  inner next;
  std::optional<at::Tensor> mask;
  std::optional<int> level;
  tensordict more;
  weft::non_tensor any;
};

TEST_CASE("struct: every member there and back, tensors shared") {
  const step s{at::rand({4, 3}),
               at::arange(4),
               "lift",
               0.5F,
               3,
               {at::ones({4}), true},
               std::nullopt,
               7,
               tensordict({{"q", at::zeros({4, 1})}}, {4}),
               weft::non_tensor::parse("[1]")};
  const tensordict td = weft::from_struct(s, {4});
  CHECK(td.to_string().find("action_2: i64[]") != std::string::npos);
  CHECK_FALSE(td.contains("mask"));
  CHECK(td.tensor({"next", "reward"}).is_same(s.next.reward));
  const step back = weft::to_struct<step>(td);
  CHECK(back.obs.is_same(s.obs));
  CHECK(back.action_2.is_same(s.action_2));
  CHECK(back.task == "lift");
  CHECK(back.scale == 0.5F);
  CHECK(back.lives == 3);
  CHECK(back.next.last);
  CHECK_FALSE(back.mask);
  CHECK(*back.level == 7);
  CHECK(back.more.is_same(td.dict("more")));
  CHECK(back.any == s.any);
  // A slice of all its tensors.
  const auto half = weft::to_struct<step>(td.index({at::indexing::Slice(0, 2)}));
  CHECK(half.obs.equal(s.obs.slice(0, 0, 2)));
}

TEST_CASE("struct: what does not fit is refused, by its key") {
  const inner good{at::ones({2}), false};
  CHECK(refused([&] { static_cast<void>(weft::from_struct(good, {3})); }) ==
        tensordict_errc::shape);
  CHECK(refused([&] { static_cast<void>(weft::from_struct(inner{}, {2})); }) ==
        tensordict_errc::kind);
  tensordict td = weft::from_struct(good, {2});
  td.set("extra", at::ones({2}));
  CHECK(refused([&] { static_cast<void>(weft::to_struct<inner>(td)); }) == tensordict_errc::no_key);
  td.erase("extra").erase("last");
  CHECK(refused([&] { static_cast<void>(weft::to_struct<inner>(td)); }) == tensordict_errc::no_key);
  td.set("last", weft::non_tensor(1));
  CHECK(refused([&] { static_cast<void>(weft::to_struct<inner>(td)); }) == tensordict_errc::kind);
  struct small {
    std::uint8_t n = 0;
  };
  const tensordict big({{"n", weft::non_tensor(256)}});
  CHECK(refused([&] { static_cast<void>(weft::to_struct<small>(big)); }) == tensordict_errc::kind);
}

torch::nn::Sequential network() {
  return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4),
                               torch::nn::Linear(4, 2));
}

TEST_CASE("module: its tensors, by their names, in its memory") {
  auto net = network();
  const tensordict td = weft::from_module(*net);
  CHECK(td.is_locked());
  CHECK(td.leaves().size() == 4 + 5);
  CHECK(td.tensor({"1", "running_mean"}).sizes() == at::IntArrayRef{4});
  CHECK(td.tensor({"0", "weight"}).data_ptr() == net->parameters()[0].data_ptr());
  CHECK_FALSE(td.tensor({"0", "weight"}).requires_grad());
  td.tensor({"0", "weight"}).fill_(2);
  CHECK(net->parameters()[0].eq(2).all().item<bool>());
}

TEST_CASE("module: other tensors for a while, also after an exception") {
  auto net = network();
  net->eval();
  const at::Tensor in = at::rand({5, 3});
  const at::Tensor before = net->forward(in);
  const at::Tensor weight = net->parameters()[0];
  const tensordict zeros =
      weft::from_module(*net).apply([](const at::Tensor& t) { return at::zeros_like(t); });
  {
    const auto swapped = weft::to_module(zeros, *net);
    CHECK(net->forward(in).eq(0).all().item<bool>());
    CHECK(net->parameters()[0].is_same(weight));
    CHECK(weight.requires_grad());
    // A second one within the first.
    const auto again = weft::to_module(tensordict({{"2", {{"bias", at::ones({2})}}}}), *net);
    CHECK(net->forward(in).eq(1).all().item<bool>());
    // Gradients are the module's own.
    net->forward(in).sum().backward();
    CHECK(weight.grad().defined());
  }
  CHECK(net->forward(in).equal(before));
  CHECK_THROWS_AS(
      [&] {
        const auto swapped = weft::to_module(zeros, *net);
        throw std::runtime_error("in the middle");
      }(),
      std::runtime_error);
  CHECK(net->forward(in).equal(before));
  {
    auto swapped = weft::to_module(zeros, *net);
    auto moved = std::move(swapped);
    moved.restore();
    CHECK(net->forward(in).equal(before));
  }

  // Nothing is changed if something does not fit.
  const auto with = [&](const char* key, const at::Tensor& t) {
    return tensordict({{"0", {{"bias", at::zeros({4})}}}, {"2", {{key, t}}}});
  };
  const auto swap = [&](const tensordict& td) { static_cast<void>(weft::to_module(td, *net)); };
  CHECK(refused([&] { swap(with("bia", at::zeros({2}))); }) == tensordict_errc::no_key);
  CHECK(refused([&] { swap(with("bias", at::zeros({3}))); }) == tensordict_errc::shape);
  CHECK(refused([&] { swap(with("bias", at::zeros({2}, at::kDouble))); }) == tensordict_errc::kind);
  CHECK(net->forward(in).equal(before));

  const auto load = [&](const tensordict& td) { weft::load_into(*net, td); };
  CHECK(refused([&] { load(zeros.exclude({{"2", "bias"}})); }) == tensordict_errc::no_key);
  CHECK(refused([&] { load({}); }) == tensordict_errc::no_key);
  CHECK(net->forward(in).equal(before));
  weft::load_into(*net, tensordict({{"2", {{"bias", at::zeros({2})}}}}), weft::all_names::no);
  weft::load_into(*net, zeros.to(at::kDouble));
  CHECK(net->forward(in).eq(0).all().item<bool>());
  CHECK((net->parameters()[0].scalar_type() == at::kFloat));
}

}  // namespace tensordict_structs
