// SPDX-License-Identifier: BSL-1.0
// Options of optimizers, through their bytes and back.
#include <weft/optim/options.hpp>
#include <weft/wire/message.hpp>

#include <doctest/doctest.h>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <wire/sent_over.hpp>

namespace {

template <class Options>
Options sent(const Options& o) {
  weft::message m;
  weft::encode(m.payload(), o);
  auto arrived = weft_test::copy_of(std::move(m).finish(weft::frame_header{}));
  weft::incoming_message in(std::move(*arrived));
  weft::reader r = in.payload();
  Options out = weft::decode<Options>(r);
  r.finish();
  return out;
}

TEST_CASE("optim options: every value survives, the defaults too") {
  using namespace torch::optim;
  const auto check = [](const auto& o) { CHECK(sent(o) == o); };
  check(AdamOptions());
  check(AdamOptions(0.1).betas({0.2, 0.3}).eps(0.4).weight_decay(0.5).amsgrad(true));
  check(AdamWOptions());
  check(AdamWOptions(0.1).betas({0.2, 0.3}).eps(0.4).weight_decay(0.5).amsgrad(true));
  check(SGDOptions(1.5));
  check(SGDOptions(0.1).momentum(0.2).dampening(0.3).weight_decay(0.4).nesterov(true));
  check(AdagradOptions());
  check(
      AdagradOptions(0.1).lr_decay(0.2).weight_decay(0.3).initial_accumulator_value(0.4).eps(0.5));
  check(RMSpropOptions());
  check(RMSpropOptions(0.1).alpha(0.2).eps(0.3).weight_decay(0.4).momentum(0.5).centered(true));
}

TEST_CASE("optim options: those of two optimizers are told apart") {
  using namespace torch::optim;
  CHECK(weft::structure_of<AdamOptions>() != weft::structure_of<AdamWOptions>());
  CHECK(weft::structure_of<AdamOptions>() != weft::structure_of<RMSpropOptions>());
  CHECK(weft::structure_of<SGDOptions>() != weft::structure_of<AdagradOptions>());
}

}  // namespace
