// SPDX-License-Identifier: BSL-1.0
#pragma once
// The digits as tensors: images [N,1,8,8] float32 in [0,1], labels [N] int64.

#include "csv.hpp"

#include <ATen/ATen.h>

#include <filesystem>
#include <string>
#include <vector>

namespace digits {

struct batch {
  at::Tensor images;  // [N,1,8,8] float32, 0..1
  at::Tensor labels;  // [N] int64, 0..9

  std::int64_t size() const { return labels.size(0); }
};

inline batch to_tensors(const samples& read) {
  const auto rows = static_cast<std::int64_t>(read.size());
  auto images = at::empty({rows, 1, 8, 8}, at::kFloat);
  auto labels = at::empty({rows}, at::kLong);
  auto* pixel = images.mutable_data_ptr<float>();
  for (const auto value : read.pixels) *pixel++ = static_cast<float>(value) / max_pixel;
  auto* label = labels.mutable_data_ptr<std::int64_t>();
  for (const auto value : read.labels) *label++ = value;
  return {images, labels};
}

inline batch select(const batch& from, const std::vector<std::int64_t>& rows) {
  const auto index = at::tensor(rows, at::kLong);
  return {from.images.index_select(0, index), from.labels.index_select(0, index)};
}

struct data {
  batch train;
  batch test;

  // One trainer's batches of one epoch, see digits::shard in csv.hpp.
  std::vector<batch> batches(std::int64_t size, int epoch, int trainer, int trainers,
                             std::uint64_t seed) const {
    std::vector<batch> mine;
    for (const auto& rows : shard(train.size(), size, epoch, trainer, trainers, seed))
      mine.push_back(select(train, rows));
    return mine;
  }
};

// Reads the file and holds out the test part by the seed. Throws data_error.
inline data load(const std::filesystem::path& file, std::uint64_t seed) {
  const auto read = read_csv(file);
  const auto test_size = held_out(read.size());
  if (test_size < 1) throw data_error(file.string() + ": has too few rows, at least 6 are needed");
  const auto parts = stratified(read.labels, test_size, seed);
  const auto all = to_tensors(read);
  return {select(all, parts.train), select(all, parts.test)};
}

// "1500 images to train on, 297 held out by seed 1"
inline std::string describe(const data& of, std::uint64_t seed) {
  return std::to_string(of.train.size()) + " images to train on, " +
         std::to_string(of.test.size()) + " held out by seed " + std::to_string(seed);
}

}  // namespace digits
