// SPDX-License-Identifier: BSL-1.0
// A priority queue whose entries carry its links, so that nothing in it allocates or throws. What
// is pushed in its order, as most deadlines are, waits in a line beside the heap and costs next to
// nothing.
//
//   line_ ─► l1 ─next_─► l2 ─next_─► l3 ◄─ end_
//
//   root_ ─► root ─child_─► c1 ─next_─► c2 ─next_─► c3      each child is a heap of its own
//                           │◄─before_──┘                   before_ of the first child: its parent
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
  heap_entry* before_ = nullptr;  // parent or left neighbour; of a first one itself
  heap_entry* next_ = nullptr;    // right neighbour
  heap_entry* child_ = nullptr;   // of who stands in the line itself
};

/// `Before` is a strict total order. `push` takes constant time, and so does `remove` of what was
/// pushed in order; of others O(log n) on average over a heap's life. No recursion.
template <class T, class Before>
class pairing_heap {
 public:
  pairing_heap() = default;
  pairing_heap(const pairing_heap&) = delete;
  pairing_heap& operator=(const pairing_heap&) = delete;
  ~pairing_heap() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return !root_ && !line_; }
  /// The first in order. Requires !empty().
  [[nodiscard]] T& top() const noexcept {
    return *static_cast<T*>(!line_ || (root_ && before(*root_, *line_)) ? root_ : line_);
  }

  /// Requires !item.linked().
  void push(T& item) noexcept {
    entry& one = item;
    if (line_ && before(one, *end_)) {
      if (line_ != end_) return add(one);
      // A late one that stands alone: behind it nobody could stand.
      entry& late = *line_;
      leave(late);
      add(late);
    }
    one.child_ = &one;
    one.before_ = line_ ? end_ : &one;
    (line_ ? end_->next_ : line_) = &one;
    end_ = &one;
  }
  /// Requires that `item` is in this heap.
  void remove(T& item) noexcept {
    entry& one = item;
    if (one.child_ == &one) return leave(one);
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
    while (line_) leave(*line_);
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

  static bool before(const entry& a, const entry& b) noexcept {
    return Before()(static_cast<const T&>(a), static_cast<const T&>(b));
  }
  void add(entry& one) noexcept {
    root_ = root_ ? merge(root_, &one) : &one;
    root_->before_ = root_;
  }
  /// The line.
  void leave(entry& one) noexcept {
    entry* const ahead = &one == line_ ? nullptr : one.before_;
    (ahead ? ahead->next_ : line_) = one.next_;
    if (one.next_) {
      one.next_->before_ = ahead ? ahead : one.next_;
    } else {
      end_ = ahead;
    }
    one.before_ = one.next_ = one.child_ = nullptr;
  }
  /// Two heaps become one. Neither has neighbours; the caller sets what is before the result.
  static entry* merge(entry* a, entry* b) noexcept {
    if (before(*b, *a)) std::swap(a, b);
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
  entry* line_ = nullptr;
  entry* end_ = nullptr;  // of the line
};

}  // namespace weft::detail
