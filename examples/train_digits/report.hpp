// SPDX-License-Identifier: BSL-1.0
#pragma once
// What a run says while it goes on and what it leaves behind. One object, at the server: the
// trainers call its members through an rref.

#include "console.hpp"
#include "records.hpp"
#include "settings.hpp"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace digits {

// Members may be called from any thread.
class report {
 public:
  // `train_samples` are in one epoch of all trainers. Throws output_error where the folder
  // `how.out` cannot be written to.
  report(settings how, std::int64_t train_samples);

  // The run goes on behind these epochs.
  void resume(std::vector<epoch_record> before);
  std::vector<epoch_record> records();

  // A line of the log, from the worker of that name.
  void log(std::string who, std::string text);

  // A trainer took `samples` further, at this loss: moves the bar.
  void step(int epoch, std::int64_t samples, double loss);

  // A trainer's epoch is over. The part that completes the epoch makes it a line of the log.
  void epoch(epoch_part part);

  // Writes train.json and curves.png, and prints as last line "test accuracy 0.979". Throws
  // output_error.
  double finish();

 private:
  using clock = std::chrono::steady_clock;
  double seconds() const { return std::chrono::duration<double>(clock::now() - began_).count(); }

  settings how_;
  console console_;
  std::mutex mutex_;
  history history_;
  progress progress_;
  std::int64_t before_ = 0;  // samples of earlier runs
  std::int64_t items_ = 0;   // that came by streams
  clock::time_point began_ = clock::now();
};

}  // namespace digits
