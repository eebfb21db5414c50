// SPDX-License-Identifier: BSL-1.0
// Children of a task group whose results are kept.
#pragma once

#include <weft/core/detail/as_error.hpp>
#include <weft/core/error.hpp>
#include <weft/core/future.hpp>

#include <asio/awaitable.hpp>

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace weft::detail {

/// `out` outlives it.
template <class T>
asio::awaitable<void> keep(asio::awaitable<T> work, std::optional<stored<T>>& out) {
  if constexpr (std::is_void_v<T>) {
    co_await std::move(work);
    out.emplace();
  } else {
    out.emplace(co_await std::move(work));
  }
}
template <class T>
asio::awaitable<void> keep(asio::awaitable<T> work, std::optional<expected<T>>& out) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(work);
      out.emplace();
    } else {
      out.emplace(co_await std::move(work));
    }
  } catch (...) {
    out.emplace(tl::unexpected(as_error(std::current_exception())));
  }
}

/// Of a child that was destroyed, and left no result.
[[noreturn]] inline void throw_dropped() {
  throw rpc_error(errc::cancelled, "the work was dropped before it ended",
                  call_progress::maybe_executed);
}
/// Of a group whose children have all ended.
template <class T>
[[nodiscard]] T result_in(std::optional<T>& out) {
  if (!out) throw_dropped();
  return std::move(*out);
}

}  // namespace weft::detail
