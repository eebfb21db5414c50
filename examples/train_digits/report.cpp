// SPDX-License-Identifier: BSL-1.0
#include "report.hpp"

#include "curves.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

namespace digits {

report::report(settings how, std::int64_t train_samples)
    : how_(std::move(how)), console_(stdout), history_(how_.trainers) {
  prepare_folder(how_.out);
  progress_.epochs = how_.epochs;
  progress_.total = train_samples * how_.epochs;
}

void report::resume(std::vector<epoch_record> before) {
  const std::scoped_lock lock(mutex_);
  const auto done = static_cast<std::int64_t>(before.size());
  progress_.done = before_ = progress_.total / std::max(how_.epochs, 1) * done;
  history_.restore(std::move(before));
}
std::vector<epoch_record> report::records() {
  const std::scoped_lock lock(mutex_);
  return {history_.records().begin(), history_.records().end()};
}

void report::log(std::string who, std::string text) { console_.log(who, text); }

void report::step(int epoch, std::int64_t samples, double loss) {
  progress now;
  {
    const std::scoped_lock lock(mutex_);
    progress_.loss = progress_.done == before_ ? loss : 0.95 * progress_.loss + 0.05 * loss;
    progress_.done += samples;
    progress_.epoch = std::max(progress_.epoch, epoch + 1);
    progress_.samples_per_second =
        static_cast<double>(progress_.done - before_) / std::max(seconds(), 1e-3);
    if (how_.loaders > 0) {
      progress_.items_per_second = static_cast<double>(++items_) / std::max(seconds(), 1e-3);
    }
    now = progress_;
  }
  console_.show(now);
}

void report::epoch(epoch_part part) {
  std::optional<epoch_record> complete;
  {
    const std::scoped_lock lock(mutex_);
    complete = history_.add(part);
  }
  if (complete) console_.log("all", summary(*complete, how_.epochs));
}

double report::finish() {
  const std::scoped_lock lock(mutex_);
  console_.clear();
  const std::filesystem::path folder = how_.out;
  write_curves(folder / "curves.png", history_.records());
  write_json(folder, to_json(history_, how_, seconds()));
  console_.log("", "wrote " + (folder / "curves.png").string() + " and " +
                       (folder / "train.json").string());
  char line[40];
  std::snprintf(line, sizeof line, "test accuracy %.3f", history_.test_accuracy());
  console_.log("", line);
  return history_.test_accuracy();
}

}  // namespace digits
