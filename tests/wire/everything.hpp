// SPDX-License-Identifier: BSL-1.0
// A type in which every kind of value stands that a message can carry.
#pragma once

#include <weft/core/error.hpp>

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

namespace weft_test {

enum class colour { red, green };
struct leaf {
  std::uint16_t id;
  std::optional<std::string> label;
};
struct tree {
  leaf value;
  std::vector<tree> children;
};
struct everything {
  bool flag;
  colour tint;
  std::string text;
  std::vector<std::string> words;
  std::vector<double> numbers;
  std::map<std::string, std::vector<int>> table;
  std::unordered_map<int, char> index;
  std::set<int> set;
  std::unordered_set<std::string> names;
  std::list<int> list;
  std::deque<std::tuple<int, bool>> queue;
  std::variant<int, std::string, std::vector<int>> choice;
  std::unique_ptr<leaf> one;
  std::array<std::vector<bool>, 2> bits;
  tree root;
  weft::error trouble;
};

}  // namespace weft_test
