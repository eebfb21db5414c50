// SPDX-License-Identifier: BSL-1.0
#pragma once
// What is known of a run, epoch by epoch, and its form as json. Plain C++, no libtorch.

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace digits {

struct settings;

// What one trainer says at the end of an epoch.
struct epoch_part {
  int trainer = 0;  // 0..trainers-1
  int epoch = 0;    // from 0
  std::int64_t samples = 0;
  std::int64_t steps = 0;
  double loss_sum = 0;  // over the steps
  double seconds = 0;   // of training, without the test
  std::int64_t tested = 0;
  std::int64_t correct = 0;  // of the tested
  std::uint64_t bytes = 0;   // sent and received in these steps
  std::uint64_t calls = 0;

  void count(std::int64_t of_samples, double loss) {  // one step
    samples += of_samples;
    ++steps;
    loss_sum += loss;
  }
};

// All trainers together.
struct epoch_record {
  int epoch = 0;        // from 1
  double loss = 0;      // mean over all steps
  double accuracy = 0;  // mean over the trainers, each tests with its own head
  double samples_per_second = 0;
  double bytes_per_step = 0;
  double calls_per_step = 0;
};

// "epoch 3/30: loss 0.1234, test accuracy 0.951, 4567 samples/s, 31.2 kB and 5.0 calls per step"
std::string summary(const epoch_record& record, int epochs);

// Collects the parts of all trainers, which need not be in the same epoch.
class history {
 public:
  explicit history(int trainers) : trainers_(trainers) {}

  // The epoch's record, with the part that completes it. Throws std::invalid_argument where the
  // trainer does not exist or has spoken of this epoch before.
  std::optional<epoch_record> add(const epoch_part& part);

  // Those of an earlier run; further ones follow.
  void restore(std::vector<epoch_record> records);

  std::span<const epoch_record> records() const { return records_; }  // in order of completion

  // Of the last epoch; 0 where there is none.
  double test_accuracy() const { return records_.empty() ? 0 : records_.back().accuracy; }

 private:
  int trainers_;
  std::map<int, std::vector<epoch_part>> open_;
  std::set<int> closed_;
  std::vector<epoch_record> records_;
};

// A loss that is not finite becomes null:
// {"test_accuracy": 0.979, "seconds": …, "settings": {…}, "epochs": [{"epoch": 1, "loss": …}, …]}
nlohmann::json to_json(const history& run, const settings& how, double seconds);

// A folder that cannot be made or written to; the text names it and the cause.
struct output_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Creates the folder where it is missing, and makes sure that `train.json` can be written in it, so
// that a run does not find this out at its end. Throws output_error.
void prepare_folder(const std::filesystem::path& folder);

// Writes train.json into the folder, whole or not at all. Throws output_error.
void write_json(const std::filesystem::path& folder, const nlohmann::json& what);

}  // namespace digits
