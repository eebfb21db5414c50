// SPDX-License-Identifier: BSL-1.0
// What a callback refers to: a function of any type behind one member that has a name.
#pragma once

#include <asio/awaitable.hpp>

#include <type_traits>
#include <utility>

namespace weft::detail {

/// False, for sentences about callbacks that are made of something else.
template <class F, class Signature>
inline constexpr bool fits_signature = false;
template <class F>
inline constexpr bool has_its_worker = false;

/// What a callback refers to.
template <class Signature>
class called_back;
template <class R, class... Args>
class called_back<R(Args...)> {
 public:
  virtual ~called_back() = default;
  /// A coroutine, so that the arguments live as long as what the function awaits.
  virtual asio::awaitable<R> call(std::remove_cvref_t<Args>... args) = 0;
};

/// The function, which returns R, or an awaitable of it.
template <class F, class Signature>
class called_back_by;
template <class F, class R, class... Args>
class called_back_by<F, R(Args...)> final : public called_back<R(Args...)> {
  using result = std::invoke_result_t<F&, Args...>;
  static constexpr bool waits = std::is_convertible_v<result, asio::awaitable<R>>;
  static_assert(waits || std::is_void_v<R> || std::is_convertible_v<result, R>,
                "weft: a callback's function must return the type of its signature, or an "
                "asio::awaitable of it");

 public:
  explicit called_back_by(F f) : function_(std::move(f)) {}

  asio::awaitable<R> call(std::remove_cvref_t<Args>... args) override {
    if constexpr (waits) {
      co_return co_await function_(std::forward<Args>(args)...);
    } else if constexpr (std::is_void_v<R>) {
      function_(std::forward<Args>(args)...);
      co_return;
    } else {
      co_return function_(std::forward<Args>(args)...);
    }
  }

 private:
  F function_;
};

}  // namespace weft::detail
