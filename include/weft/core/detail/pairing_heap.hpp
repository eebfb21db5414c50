// SPDX-License-Identifier: BSL-1.0
// A priority queue whose entries carry its links, so that nothing in it allocates or throws.
//
//   first_ ─► root ─child_─► c1 ─next_─► c2 ─next_─► c3      each child is a heap of its own
//                            │◄─before_──┘                   before_ of the first child: its parent
#pragma once

#include <utility>

namespace weft::detail {

template <class T, class Before>
class pairing_heap;

/// Base of T, an entry of at most one heap, which it must leave before it dies.
template <class T>
class heap_entry {
 public:
  heap_entry() = default;
  heap_entry(const heap_entry&) = delete;
  heap_entry& operator=(const heap_entry&) = delete;
  /// Is in a heap.
  [[nodiscard]] bool linked() const noexcept { return before_ != nullptr; }

 private:
  template <class, class>
  friend class pairing_heap;
  heap_entry* before_ = nullptr;  // parent or left neighbour; the root's is itself
  heap_entry* next_ = nullptr;    // right neighbour
  heap_entry* child_ = nullptr;
};

/// `Before` is a strict total order. `push` takes constant time, `remove` O(log n) on average over
/// a heap's life, and constant time for an entry that was pushed behind the first and that nothing
/// came behind since. No recursion.
template <class T, class Before>
class pairing_heap {
 public:
  pairing_heap() = default;
  pairing_heap(const pairing_heap&) = delete;
  pairing_heap& operator=(const pairing_heap&) = delete;
  ~pairing_heap() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return !root_; }
  /// The first in order. Requires !empty().
  [[nodiscard]] T& top() const noexcept { return *static_cast<T*>(root_); }

  /// Requires !item.linked().
  void push(T& item) noexcept {
    entry& one = item;
    root_ = root_ ? merge(root_, &one) : &one;
    root_->before_ = root_;
  }
  /// Requires that `item` is in this heap.
  void remove(T& item) noexcept {
    entry& one = item;
    entry* const orphans = merge_all(std::exchange(one.child_, nullptr));
    if (&one == root_) {
      root_ = orphans;
    } else {
      (one.before_->child_ == &one ? one.before_->child_ : one.before_->next_) = one.next_;
      if (one.next_) one.next_->before_ = one.before_;
      if (orphans) root_ = merge(root_, orphans);
    }
    one.before_ = one.next_ = nullptr;
    if (root_) root_->before_ = root_;
  }
  /// Lets all entries go, in no order.
  void clear() noexcept {
    // A tree as one list of what is left to unlink: children are put in front of it.
    for (entry* left = std::exchange(root_, nullptr); left;) {
      entry* const one = left;
      left = one->next_;
      if (entry* last = one->child_) {
        while (last->next_) last = last->next_;
        last->next_ = left;
        left = one->child_;
      }
      one->before_ = one->next_ = one->child_ = nullptr;
    }
  }

 private:
  using entry = heap_entry<T>;

  /// Two heaps become one. Neither has neighbours; the caller sets what is before the result.
  static entry* merge(entry* a, entry* b) noexcept {
    if (Before()(*static_cast<const T*>(b), *static_cast<const T*>(a))) std::swap(a, b);
    b->before_ = a;
    b->next_ = a->child_;
    if (b->next_) b->next_->before_ = b;
    a->child_ = b;
    return a;
  }
  /// Neighbours become one heap: in pairs from the left, then the pairs from the right. The other
  /// way round, or one after another, would cost O(n) again and again.
  static entry* merge_all(entry* first) noexcept {
    entry* pairs = nullptr;  // last first, linked by next_
    while (first) {
      entry* a = first;
      entry* const b = a->next_;
      first = b ? b->next_ : nullptr;
      a->next_ = nullptr;
      if (b) {
        b->next_ = nullptr;
        a = merge(a, b);
      }
      a->next_ = pairs;
      pairs = a;
    }
    entry* all = nullptr;
    while (pairs) {
      entry* const pair = std::exchange(pairs, pairs->next_);
      pair->next_ = nullptr;
      all = all ? merge(all, pair) : pair;
    }
    return all;
  }

  entry* root_ = nullptr;
};

}  // namespace weft::detail
