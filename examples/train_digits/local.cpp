// SPDX-License-Identifier: BSL-1.0
#include "local.hpp"

#include "data.hpp"
#include "model.hpp"
#include "report.hpp"

#include <ATen/Parallel.h>
#include <torch/optim/adam.h>

#include <chrono>

namespace digits {

double train_local(const settings& how) {
  at::set_num_threads(how.threads > 0 ? how.threads : 1);  // more does not pay for so small a model
  const auto data = load(how.data, how.seed);
  report says(how, data.train.size());
  says.log("local", describe(data, how.seed));

  const auto seed = static_cast<std::int64_t>(how.seed);
  Encoder encoder(hidden_size, seed);
  Head head(hidden_size, seed + 1);
  auto parameters = encoder.parameters();
  for (auto& p : head.parameters()) parameters.push_back(p);
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(how.learning_rate));

  for (int epoch = 0; epoch < how.epochs; ++epoch) {
    epoch_part part{.epoch = epoch};
    const auto began = std::chrono::steady_clock::now();
    for (const auto& [images, labels] : data.batches(how.batch, epoch, 0, 1, how.seed)) {
      optimizer.zero_grad();
      const auto error = loss(head.forward(encoder.forward(images)), labels);
      error.backward();
      optimizer.step();
      part.count(labels.size(0), error.item<double>());
      says.step(epoch, labels.size(0), error.item<double>());
    }
    part.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const at::NoGradGuard no_grad;
    part.tested = data.test.size();
    part.correct = correct(head.forward(encoder.forward(data.test.images)), data.test.labels);
    says.epoch(part);
  }
  return says.finish();
}

}  // namespace digits
