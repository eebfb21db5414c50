// SPDX-License-Identifier: BSL-1.0
// Iterates what has no order.
#pragma once

struct table {
  std::unordered_map<int, std::vector<int>>
      entries_;
  using index = std::unordered_set<int>;
  index names_;
  std::map<int, int> sorted_;
  void walk() {
    for (auto& [key, value] : entries_) use(key);
    for (auto& [key, value] : sorted_) use(key);
    auto first = names_.begin();
    entries_.find(3);
  }
  static void walk(const std::unordered_map<int, int>& given, index&& taken) {
    for (auto& [key, value] : given) use(key);
    for (int key : taken) use(key);
  }
};
