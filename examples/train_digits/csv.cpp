// SPDX-License-Identifier: BSL-1.0
#include "csv.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>

namespace digits {
namespace {

constexpr std::size_t values_per_row = pixels_per_image + 1;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// At most 24 characters of a text that may be anything, fit for a message.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 24)) out += c >= ' ' && c < 127 ? c : '?';
  return out + (text.size() > 24 ? "...'" : "'");
}

// One row: parses, checks, appends. Returns what is wrong with it, or an empty text.
std::string append_row(std::string_view line, samples& into) {
  if (trimmed(line).empty()) return "an empty line";
  const auto count = static_cast<std::size_t>(std::ranges::count(line, ',')) + 1;
  if (count != values_per_row)
    return std::to_string(count) + (count == 1 ? " value" : " values") +
           ", but a row has 65 (64 pixels, then the label)";

  std::array<std::uint8_t, values_per_row> row{};
  for (std::size_t column = 0; column < values_per_row; ++column) {
    const auto comma = line.find(',');
    const auto text = trimmed(line.substr(0, comma));
    line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);

    const bool is_label = column == pixels_per_image;
    const int highest = is_label ? classes - 1 : max_pixel;
    const auto where = "value " + std::to_string(column + 1) + (is_label ? " (the label) " : " ");
    int value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool too_large = problem == std::errc::result_out_of_range;
    if (end != text.data() + text.size() || (problem != std::errc{} && !too_large))
      return where + "is " + quoted(text) + ", not a whole number";
    if (too_large || value < 0 || value > highest)
      return where + "is " + quoted(text) + ", outside 0.." + std::to_string(highest);
    row[column] = static_cast<std::uint8_t>(value);
  }
  into.pixels.insert(into.pixels.end(), row.begin(), row.end() - 1);
  into.labels.push_back(row.back());
  return {};
}

// Fisher-Yates with a plain remainder: std::shuffle may differ between standard libraries.
void shuffle(std::span<std::int64_t> values, std::mt19937_64& random) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[random() % left]);
}

}  // namespace

samples read_csv(std::istream& in, const std::string& name) {
  samples read;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    const auto wrong = append_row(line, read);
    if (!wrong.empty())
      throw data_error(std::string(name).append(":" + std::to_string(number) + ": ").append(wrong));
  }
  if (in.bad()) throw data_error(name + ": cannot be read to its end");
  if (read.size() == 0) throw data_error(name + ": is empty, there is no row in it");
  return read;
}

samples read_csv(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw data_error(file.string() + ": is a folder, not a file");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw data_error(file.string() + ": cannot be opened for reading");
  return read_csv(in, file.string());
}

std::int64_t held_out(std::size_t rows) {
  return std::min<std::int64_t>(297, static_cast<std::int64_t>(rows) / 6);
}

split stratified(std::span<const std::uint8_t> labels, std::int64_t test_size, std::uint64_t seed) {
  const auto total = static_cast<std::int64_t>(labels.size());
  if (test_size < 1 || test_size >= total)
    throw std::invalid_argument("cannot hold out " + std::to_string(test_size) + " of " +
                                std::to_string(total) + " rows: both parts need at least one");

  std::array<std::vector<std::int64_t>, classes> by_class;
  for (std::int64_t i = 0; i < total; ++i)
    by_class.at(labels[static_cast<std::size_t>(i)]).push_back(i);

  // Each class gets the whole part of its share; what is left goes to the largest remainders.
  std::array<std::int64_t, classes> quota{};
  std::array<std::pair<std::int64_t, std::size_t>, classes> remainders{};
  std::int64_t given = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    const auto share = static_cast<std::int64_t>(by_class[c].size()) * test_size;
    quota[c] = share / total;
    remainders[c] = {-(share % total), c};
    given += quota[c];
  }
  std::ranges::sort(remainders);
  for (std::size_t i = 0; given < test_size; ++i, ++given) ++quota[remainders[i].second];

  std::mt19937_64 random(seed);
  split parts;
  for (std::size_t c = 0; c < classes; ++c) {
    shuffle(by_class[c], random);
    const auto border = by_class[c].begin() + quota[c];
    parts.test.insert(parts.test.end(), by_class[c].begin(), border);
    parts.train.insert(parts.train.end(), border, by_class[c].end());
  }
  std::ranges::sort(parts.test);
  std::ranges::sort(parts.train);
  return parts;
}

std::vector<std::vector<std::int64_t>> shard(std::int64_t count, std::int64_t batch, int epoch,
                                             int trainer, int trainers, std::uint64_t seed) {
  if (count < 0 || batch < 1 || trainers < 1 || trainer < 0 || trainer >= trainers)
    throw std::invalid_argument("shard: needs batch >= 1 and 0 <= trainer < trainers");
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::seed_seq mixed{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      static_cast<std::uint32_t>(epoch)};
  std::mt19937_64 random(mixed);
  shuffle(order, random);

  std::vector<std::vector<std::int64_t>> mine;
  for (std::int64_t begin = trainer * batch; begin < count; begin += trainers * batch)
    mine.emplace_back(order.begin() + begin, order.begin() + std::min(begin + batch, count));
  return mine;
}

}  // namespace digits
