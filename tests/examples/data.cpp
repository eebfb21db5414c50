// SPDX-License-Identifier: BSL-1.0
#include "../../examples/train_digits/csv.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

// 64 pixels 0..15 in turn, then the label.
std::string row(const std::string& label) {
  std::string text;
  for (int i = 0; i < 64; ++i) text += std::to_string(i % 16) + ",";
  return text + label;
}

digits::samples read(const std::string& text) {
  std::istringstream in(text);
  return digits::read_csv(in, "some.csv");
}

// What the reader says about a file; "" where it takes it.
std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const digits::data_error& e) {
    return e.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

}  // namespace

TEST_CASE("digits csv: good rows arrive in order") {
  const auto got = read(row("7") + "\n" + row(" 0") + "\r\n" + row("9"));
  REQUIRE(got.size() == 3);
  CHECK(got.labels == std::vector<std::uint8_t>{7, 0, 9});
  REQUIRE(got.pixels.size() == 3 * 64);
  CHECK(got.pixels[17] == 1);
  CHECK(got.pixels[64 + 15] == 15);
}

TEST_CASE("digits csv: a bad row is refused by file, line and cause") {
  const auto good = row("3") + "\n";
  CHECK(refusal(good + "1,2,3\n") ==
        "some.csv:2: 3 values, but a row has 65 (64 pixels, then the label)");
  CHECK(refusal(row("3,4") + "\n").starts_with("some.csv:1: 66 values"));
  CHECK(refusal(good + "\n" + good) == "some.csv:2: an empty line");
  CHECK(refusal(good + good + row("x") + "\n") ==
        "some.csv:3: value 65 (the label) is 'x', not a whole number");
  CHECK(refusal(row("1.5")) == "some.csv:1: value 65 (the label) is '1.5', not a whole number");
  CHECK(refusal(row("")) == "some.csv:1: value 65 (the label) is '', not a whole number");
  CHECK(refusal(row("10")) == "some.csv:1: value 65 (the label) is '10', outside 0..9");
  CHECK(refusal(good + replaced(row("1"), "2,3", "2,17")) ==
        "some.csv:2: value 4 is '17', outside 0..16");
  CHECK(refusal(replaced(row("1"), "2,3", "2,-1")) == "some.csv:1: value 4 is '-1', outside 0..16");
  CHECK(refusal(replaced(row("1"), "2,3", "2,99999999999")) ==
        "some.csv:1: value 4 is '99999999999', outside 0..16");
  CHECK(refusal(replaced(row("1"), "2,3", "2,3 4")) ==
        "some.csv:1: value 4 is '3 4', not a whole number");
}

TEST_CASE("digits csv: a long or unprintable value is quoted within bounds") {
  const auto text = refusal(replaced(row("1"), "2,3", "2,\x01" + std::string(500, 'z')));
  CHECK(text == "some.csv:1: value 4 is '?zzzzzzzzzzzzzzzzzzzzzzz...', not a whole number");
}

TEST_CASE("digits csv: an empty file, a missing one and a folder are refused by name") {
  CHECK(refusal("") == "some.csv: is empty, there is no row in it");
  CHECK_THROWS_WITH_AS(digits::read_csv(std::filesystem::path("no/such.csv")),
                       "no/such.csv: cannot be opened for reading", digits::data_error);
  CHECK_THROWS_WITH_AS(digits::read_csv(std::filesystem::path(".")), ".: is a folder, not a file",
                       digits::data_error);
}

TEST_CASE("digits split: holds out 297 of 1797, each class in proportion, by the seed") {
  std::vector<std::uint8_t> labels;
  const std::array<int, 10> counts{178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
  for (std::size_t c = 0; c < counts.size(); ++c)
    labels.insert(labels.end(), static_cast<std::size_t>(counts[c]), static_cast<std::uint8_t>(c));
  const auto test_size = digits::held_out(labels.size());
  CHECK(test_size == 297);

  const auto parts = digits::stratified(labels, test_size, 1);
  REQUIRE(parts.test.size() == 297);
  REQUIRE(parts.train.size() == 1500);
  std::set<std::int64_t> all(parts.test.begin(), parts.test.end());
  all.insert(parts.train.begin(), parts.train.end());
  CHECK(all.size() == 1797);

  for (std::size_t c = 0; c < counts.size(); ++c) {
    const auto held = std::ranges::count_if(
        parts.test, [&](auto i) { return labels[static_cast<std::size_t>(i)] == c; });
    const double share = counts[c] * 297.0 / 1797.0;
    CAPTURE(c);
    CHECK(static_cast<double>(held) >= std::floor(share));
    CHECK(static_cast<double>(held) <= std::floor(share) + 1);
  }

  CHECK(digits::stratified(labels, test_size, 1).test == parts.test);
  CHECK(digits::stratified(labels, test_size, 2).test != parts.test);
}

TEST_CASE("digits split: refuses to leave a part empty") {
  const std::vector<std::uint8_t> labels{1, 2, 3};
  CHECK_THROWS_AS(digits::stratified(labels, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(digits::stratified(labels, 0, 1), std::invalid_argument);
}

TEST_CASE("digits shards: trainers together see each sample once, in an order of seed and epoch") {
  std::vector<std::int64_t> seen;
  std::vector<std::vector<std::int64_t>> first;
  for (int trainer = 0; trainer < 3; ++trainer) {
    const auto mine = digits::shard(100, 8, 0, trainer, 3, 42);
    if (trainer == 0) first = mine;
    CHECK(mine.size() == (trainer == 0 ? 5 : 4));  // 13 batches over 3
    for (const auto& batch : mine) {
      CHECK(batch.size() <= 8);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
  }
  std::ranges::sort(seen);
  REQUIRE(seen.size() == 100);
  CHECK(std::ranges::adjacent_find(seen) == seen.end());

  CHECK(digits::shard(100, 8, 0, 0, 3, 42) == first);
  CHECK(digits::shard(100, 8, 1, 0, 3, 42) != first);
  CHECK(digits::shard(100, 8, 0, 0, 3, 43) != first);
}

TEST_CASE("digits shards: a trainer for whom nothing is left gets nothing") {
  CHECK(digits::shard(8, 8, 0, 1, 2, 1).empty());
  CHECK_THROWS_AS(digits::shard(8, 8, 0, 2, 2, 1), std::invalid_argument);
}

TEST_CASE("digits csv: the file that comes with the examples is whole") {
  const auto here = std::filesystem::path(__FILE__).parent_path();
  const auto got = digits::read_csv(here / "../../examples/data/digits.csv");
  CHECK(got.size() == 1797);
  for (std::uint8_t c = 0; c < 10; ++c) CHECK(std::ranges::count(got.labels, c) >= 174);
}
