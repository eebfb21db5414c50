// SPDX-License-Identifier: BSL-1.0
// A user's own optimizer: it adds one to what has a gradient, waits at a door, and at some workers
// it will not step at all.
#pragma once

#include <weft/optim/distributed.hpp>

#include <torch/optim/optimizer.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <rref/workers.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace optim_tests {

struct stubborn_options : torch::optim::OptimizerCloneableOptions<stubborn_options> {
  static constexpr std::string_view weft_structure = "optim_tests::stubborn_options 1";
  stubborn_options() = default;
  explicit stubborn_options(std::vector<float> r) : refuses(std::move(r)) {}
  std::vector<float> refuses;  ///< parameters that begin with one of these

  friend void weft_encode(weft::writer& w, const stubborn_options& o) {
    weft::encode(w, o.refuses);
  }
  friend stubborn_options weft_decode(weft::reader& r, std::type_identity<stubborn_options>) {
    return stubborn_options(weft::decode<std::vector<float>>(r));
  }
};

class stubborn : public torch::optim::Optimizer {
 public:
  stubborn(std::vector<at::Tensor> parameters, const stubborn_options& o)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<stubborn_options>(o)) {}

  at::Tensor step(LossClosure = nullptr) override {
    door().pass();
    if (fault) fault();
    const auto& refuses = static_cast<const stubborn_options&>(defaults()).refuses;
    for (at::Tensor& p : param_groups().front().params()) {
      if (std::find(refuses.begin(), refuses.end(), p.flatten()[0].item<float>()) !=
          refuses.end()) {
        throw std::logic_error("it will not");
      }
      if (p.grad().defined()) p.add_(1);
    }
    return {};
  }

  /// Called at the beginning of a step, if set. To be changed while none runs.
  static inline std::function<void()> fault;

  /// Open until a test closes it.
  static weft::testing::gate& door() {
    static weft::testing::gate it(weft::testing::gate::state::open);
    return it;
  }
};

}  // namespace optim_tests

template <>
struct weft::optim::optimizer_traits<optim_tests::stubborn> {
  using options = optim_tests::stubborn_options;
  static constexpr weft::fixed_string name{"optim_tests::stubborn"};
};
