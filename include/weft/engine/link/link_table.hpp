// SPDX-License-Identifier: BSL-1.0
// The links of one worker, each made when it is first asked for: a worker pays for whom it talks
// to, and a pointer for everybody else.
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/link/link.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::engine {

/// Any thread. Links are never removed, so walking through them needs no lock.
class link_table {
  struct entry {
    intrusive_ptr<link> of;
    std::atomic<entry*> next{nullptr};  // the next higher rank that has one
  };

 public:
  using maker = std::function<intrusive_ptr<link>(std::uint32_t rank)>;

  link_table(std::uint32_t size, maker make)
      : by_rank_(std::make_unique<std::atomic<entry*>[]>(size)), make_(std::move(make)) {}
  link_table(const link_table&) = delete;
  link_table& operator=(const link_table&) = delete;
  ~link_table() {
    for (entry* e = first_.load(); e;) delete std::exchange(e, e->next.load());
  }

  /// The link to that worker, which is made if it was not.
  [[nodiscard]] link& operator[](std::uint32_t rank) {
    if (link* l = find(rank)) return *l;
    const std::lock_guard lock(mutex_);
    if (link* l = find(rank)) return *l;  // another thread made it
    auto made = std::make_unique<entry>();
    made->of = make_(rank);
    for (const auto& what : done_to_all_) what(*made->of);
    std::atomic<entry*>* at = &first_;
    while (entry* e = at->load()) {
      if (e->of->rank() > rank) break;
      at = &e->next;
    }
    made->next.store(at->load());
    link& out = *made->of;
    // Who walks misses no link that somebody has.
    at->store(made.get(), std::memory_order_release);
    by_rank_[rank].store(made.release(), std::memory_order_release);
    return out;
  }
  /// Null: nobody has asked for it.
  [[nodiscard]] link* find(std::uint32_t rank) const noexcept {
    entry* e = by_rank_[rank].load(std::memory_order_acquire);
    return e ? e->of.get() : nullptr;
  }
  /// Does that to each link now, and to each that is made later before anybody has it.
  void do_to_all(const std::function<void(link&)>& what) {
    {
      const std::lock_guard lock(mutex_);
      done_to_all_.push_back(what);
    }
    for (link& l : *this) what(l);
  }

  /// By rank. One that is made meanwhile may be missed.
  class iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = link;
    using difference_type = std::ptrdiff_t;
    using pointer = link*;
    using reference = link&;

    iterator() = default;
    explicit iterator(entry* at) noexcept : at_(at) {}
    link& operator*() const noexcept { return *at_->of; }
    link* operator->() const noexcept { return at_->of.get(); }
    iterator& operator++() noexcept {
      at_ = at_->next.load(std::memory_order_acquire);
      return *this;
    }
    iterator operator++(int) noexcept {
      const iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const iterator&) const = default;

   private:
    entry* at_ = nullptr;
  };
  [[nodiscard]] iterator begin() const noexcept {
    return iterator(first_.load(std::memory_order_acquire));
  }
  [[nodiscard]] iterator end() const noexcept { return {}; }

 private:
  const std::unique_ptr<std::atomic<entry*>[]> by_rank_;
  std::atomic<entry*> first_{nullptr};
  const maker make_;
  std::mutex mutex_;  // of those who make one
  std::vector<std::function<void(link&)>> done_to_all_;
};

}  // namespace weft::engine
