// SPDX-License-Identifier: BSL-1.0
// Objects whose functions run one at a time.
#pragma once

#include <weft/core/detail/fifo_lock.hpp>
#include <weft/rref/detail/in_turn.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <type_traits>
#include <utility>

namespace weft {

/// A T whose functions run one at a time, also those that wait in between. They run in the order in
/// which their requests arrived. Requests that arrived before the object was made run in any order.
/// A call that waits for its turn holds no thread and can be cancelled. If a function calls its own
/// object through a reference, it waits for itself until its deadline. You call the functions of T:
///
///   weft::rref<weft::exclusive<account>> a = p.make<weft::exclusive<account>>(100);
///   co_await a.call<&account::withdraw>(30);
template <class T>
class exclusive {
 public:
  template <class... Args>
    requires std::is_constructible_v<T, Args...>
  explicit exclusive(Args&&... args) : object_(std::forward<Args>(args)...) {}
  exclusive(const exclusive&) = delete;
  exclusive& operator=(const exclusive&) = delete;

 private:
  template <class Fn, class U>
  friend struct detail::in_turn;
  T object_;
  detail::fifo_lock lock_;
};

}  // namespace weft
