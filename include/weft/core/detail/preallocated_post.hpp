// SPDX-License-Identifier: BSL-1.0
// Posts whose memory is part of whoever posts: across threads Asio would allocate each.
#pragma once

#include <asio/execution/allocator.hpp>
#include <asio/execution/blocking.hpp>
#include <asio/io_context.hpp>
#include <asio/require.hpp>

#include <cstddef>
#include <utility>

namespace weft::detail {

/// Memory of one post. It is free again when its handler begins, so the handler may post anew, or
/// own what holds this.
class preallocated_post {
 public:
  preallocated_post() = default;
  preallocated_post(const preallocated_post&) = delete;
  preallocated_post& operator=(const preallocated_post&) = delete;

  /// Any thread, while no earlier one is on its way. Semantic duty: moving it does not throw.
  template <class Handler>
  void operator()(asio::io_context& to, Handler&& handler) noexcept {
    asio::require(to.get_executor(), asio::execution::blocking.never,
                  asio::execution::allocator(place<void>(*this)))
        .execute(std::forward<Handler>(handler));
  }

 private:
  static constexpr std::size_t room = 96;

  template <class T>
  struct place {
    using value_type = T;
    explicit place(preallocated_post& w) noexcept : where(&w) {}
    template <class U>
    place(const place<U>& other) noexcept : where(other.where) {}
    T* allocate(std::size_t) noexcept {
      static_assert(sizeof(T) <= room && alignof(T) <= alignof(std::max_align_t));
      return reinterpret_cast<T*>(where->memory_);
    }
    void deallocate(T*, std::size_t) noexcept {}
    template <class U>
    bool operator==(const place<U>& other) const noexcept {
      return where == other.where;
    }
    preallocated_post* where;
  };

  alignas(std::max_align_t) std::byte memory_[room];
};

}  // namespace weft::detail
