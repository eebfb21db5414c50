// SPDX-License-Identifier: BSL-1.0
#pragma once
// A run in a file, from which it goes on: the encoder, every head, every optimizer, the epochs.

#include "model.hpp"
#include "report.hpp"
#include "settings.hpp"
#include <weft/optim/distributed.hpp>
#include <weft/tensordict/codec.hpp>
#include <weft/tensordict/files.hpp>
#include <weft/tensordict/module.hpp>
#include <weft/tensordict/struct.hpp>
#include <weft/weft.hpp>

#include <torch/optim/adam.h>

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace digits {

using adam = weft::optim::distributed<torch::optim::Adam>;

// {"<owner>": {"<parameter>": {"exp_avg": …, "step": …}}}; a parameter without a step has none.
inline weft::tensordict to_tensordict(const adam::state_dict_type& state) {
  weft::tensordict all;
  for (std::size_t owner = 0; owner < state.size(); ++owner) {
    weft::tensordict of_owner;
    for (std::size_t p = 0; p < state[owner].size(); ++p) {
      weft::tensordict parts;
      for (const auto& [name, part] : state[owner][p]) parts.set(name, part);
      of_owner.set(std::to_string(p), parts);
    }
    all.set(std::to_string(owner), of_owner);
  }
  return all;
}
inline adam::state_dict_type to_state(const weft::tensordict& all) {
  adam::state_dict_type state;
  for (std::size_t owner = 0; owner < all.size(); ++owner) {
    const weft::tensordict of_owner = all[std::to_string(owner)];
    auto& parameters = state.emplace_back();
    for (std::size_t p = 0; p < of_owner.size(); ++p) {
      auto& parts = parameters.emplace_back();
      for (const auto& [key, part] : of_owner.dict(std::to_string(p)).leaves()) {
        parts.emplace(key.front(), part);
      }
    }
  }
  return state;
}

// What must be the same for a run to go on.
struct run_identity {
  int trainers = 0;
  std::int64_t batch = 0;
  double learning_rate = 0;
  std::uint64_t seed = 0;

  static run_identity of(const settings& how) {
    return {how.trainers, how.batch, how.learning_rate, how.seed};
  }
  bool operator==(const run_identity&) const = default;
};

// The file, or an empty tensordict if the run begins. Throws tensordict_error, and runtime_error
// for another run's file.
inline weft::tensordict begun(const settings& how) {
  if (!how.resume || !std::filesystem::exists(how.checkpoint)) return {};
  weft::tensordict file = weft::from_consolidated(how.checkpoint);
  if (weft::to_struct<run_identity>(file["run"]) != run_identity::of(how)) {
    throw std::runtime_error(how.checkpoint +
                             " is of a run with other --trainers, --batch, --lr or --seed");
  }
  return file;
}
// Epochs that are done.
inline int epochs_done(const weft::tensordict& file) {
  return file.is_empty() ? 0 : static_cast<int>(file.data("epoch").as_int());
}

inline std::vector<epoch_record> read_records(const weft::tensordict& file) {
  const weft::tensordict all = file["records"];
  std::vector<epoch_record> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    out.push_back(weft::to_struct<epoch_record>(all[std::to_string(i)]));
  }
  return out;
}

// At the server. The trainers meet here after each epoch: while they wait, nobody trains.
class meeting {
 public:
  meeting(settings how, weft::rref<Encoder> encoder, weft::rref<report> says)
      : how_(std::move(how)), encoder_(encoder.local()), says_(says.local()) {}

  // A trainer has ended `epoch` (from 0), with this head and optimizer. Returns when all have, and
  // the file is written.
  asio::awaitable<void> arrive(int trainer, int epoch, weft::tensordict head,
                               weft::tensordict optimizer) {
    heads_.set(std::to_string(trainer), std::move(head));
    optimizers_.set(std::to_string(trainer), std::move(optimizer));
    const auto together = together_;
    if (static_cast<int>(heads_.size()) < how_.trainers) {
      co_await weft::event::wait(together);
      co_return;
    }
    write(epoch + 1);
    heads_ = {};
    optimizers_ = {};
    together_ = weft::make_intrusive<weft::event>();
    together->set();
  }

 private:
  void write(int epochs) const {
    weft::tensordict records;
    for (const epoch_record& r : says_->records()) {
      records.set(std::to_string(records.size()), weft::from_struct(r));
    }
    weft::to_consolidated({{"run", weft::from_struct(run_identity::of(how_))},
                           {"epoch", weft::non_tensor(epochs)},
                           {"records", records},
                           {"encoder", weft::from_module(*encoder_)},
                           {"heads", heads_},
                           {"optimizers", optimizers_}},
                          how_.checkpoint);
  }

  settings how_;
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<report> says_;
  weft::tensordict heads_, optimizers_;  // of those who wait
  weft::intrusive_ptr<weft::event> together_ = weft::make_intrusive<weft::event>();
};

}  // namespace digits
