// SPDX-License-Identifier: BSL-1.0
// The requests of one peer that are under way here, by call id: to be cancelled, or given up.
#pragma once

#include <weft/engine/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace weft::engine {

/// Item has members `served_next`, `served_link` (Item*, Item**) and `call()`. No allocation in
/// steady state. The salt keeps a peer, who chooses the ids, from choosing collisions. Not thread
/// safe.
template <class Item>
class served_calls {
 public:
  explicit served_calls(std::uint64_t salt) noexcept : salt_(salt | 1) {}

  void add(Item& item) {
    if (size_ == buckets_.size()) grow();
    link(buckets_[bucket(item.call())], item);
    ++size_;
  }
  /// Nothing happens if it is not in here.
  void remove(Item& item) noexcept {
    if (!item.served_link) return;
    *item.served_link = item.served_next;
    if (item.served_next) item.served_next->served_link = item.served_link;
    item.served_next = nullptr;
    item.served_link = nullptr;
    --size_;
    if (!cancelled_.empty()) cancelled_.erase(item.call());
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Item* find(std::uint64_t call) const noexcept {
    if (buckets_.empty()) return nullptr;
    Item* item = buckets_[bucket(call)];
    while (item && item->call() != call) item = item->served_next;
    return item;
  }
  /// Whether its caller gives it up for the first time. False also of what is not in here: a peer
  /// that makes numbers up, or repeats one, costs nothing, and one that does not is remembered only
  /// as long as its call is.
  [[nodiscard]] bool first_cancel(std::uint64_t call) {
    return find(call) && cancelled_.insert(call).second;
  }
  template <class Visit>
  void each(const Visit& visit) const {
    for (const Item* first : buckets_) {
      for (const Item* i = first; i; i = i->served_next) visit(*i);
    }
  }
  /// Takes out any one; null if there is none. `from` is where it goes on looking, at first 0.
  [[nodiscard]] Item* take(std::size_t& from) noexcept {
    for (; from < buckets_.size(); ++from) {
      if (Item* const item = buckets_[from]) {
        remove(*item);
        return item;
      }
    }
    return nullptr;
  }

 private:
  [[nodiscard]] std::size_t bucket(std::uint64_t call) const noexcept {
    const std::uint64_t mixed = (call ^ (call >> 32)) * salt_;
    return static_cast<std::size_t>((mixed ^ (mixed >> 29)) * salt_ >> 32) & (buckets_.size() - 1);
  }
  static void link(Item*& first, Item& item) noexcept {
    item.served_next = first;
    item.served_link = &first;
    if (first) first->served_link = &item.served_next;
    first = &item;
  }
  void grow() {
    std::vector<Item*> old(buckets_.empty() ? 16 : 2 * buckets_.size());
    old.swap(buckets_);
    for (Item* first : old) {
      while (first) {
        Item& item = *first;
        first = item.served_next;
        link(buckets_[bucket(item.call())], item);
      }
    }
  }

  std::uint64_t salt_;
  std::vector<Item*> buckets_;  // a power of two, or none
  std::size_t size_ = 0;
  std::set<std::uint64_t> cancelled_;  // of those in here
};

}  // namespace weft::engine
