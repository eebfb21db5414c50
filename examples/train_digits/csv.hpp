// SPDX-License-Identifier: BSL-1.0
#pragma once
// The digits file, how it is split, and who trains on what: plain C++, no libtorch.

#include <cstdint>
#include <filesystem>
#include <istream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace digits {

inline constexpr int pixels_per_image = 64;
inline constexpr int max_pixel = 16;
inline constexpr int classes = 10;

// A file that cannot be used. The text begins with the file's name, then the line where there is
// one: "digits.csv:12: 64 values, but a row has 65 (64 pixels, then the label)".
struct data_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct samples {
  std::vector<std::uint8_t> pixels;  // pixels_per_image for each label, 0..max_pixel
  std::vector<std::uint8_t> labels;  // 0..classes-1

  std::size_t size() const { return labels.size(); }
};

// Reads rows of 64 pixels and a label. Throws data_error at the first row that is not one.
samples read_csv(std::istream& in, const std::string& name);
samples read_csv(const std::filesystem::path& file);

struct split {
  std::vector<std::int64_t> train;  // row numbers from 0, ascending
  std::vector<std::int64_t> test;
};

// How many of `rows` to hold out: 297, or a sixth of a small file.
std::int64_t held_out(std::size_t rows);

// Holds out `test_size` rows, of each class in proportion, drawn by the seed. The same seed gives
// the same split with every compiler. Throws std::invalid_argument where nothing would be left to
// train.
split stratified(std::span<const std::uint8_t> labels, std::int64_t test_size, std::uint64_t seed);

// The batches of `trainer` (0..trainers-1) in one epoch: 0..count-1 are shuffled by seed and epoch,
// cut into batches, and dealt out in turn. All trainers together see each number once. The last
// batch may be smaller.
std::vector<std::vector<std::int64_t>> shard(std::int64_t count, std::int64_t batch, int epoch,
                                             int trainer, int trainers, std::uint64_t seed);

}  // namespace digits
