// SPDX-License-Identifier: BSL-1.0
// A bounded queue between coroutines. If it is full, senders wait; if it is empty, receivers wait.
#pragma once

#include <weft/core/intrusive_ptr.hpp>

#include <asio/awaitable.hpp>

#include <cstddef>
#include <optional>
#include <type_traits>

namespace weft {

namespace detail {
template <class T>
struct channel_state;
}

/// A handle: copies share one queue, which lives as long as the last copy. Values arrive in the
/// order in which they were sent, each at one receiver. Waiting coroutines are served in turn.
/// Thread safe; each wait resumes on its coroutine's executor. Coroutines that still wait are
/// destroyed with their io_context, together with a value just handed to them. The channel moves
/// and destroys T under its lock, so T must not use the channel there. Waits have no deadline of
/// their own (use `with_deadline`). A cancelled wait throws system_error operation_aborted, and has
/// sent or received nothing.
///
///   weft::channel<at::Tensor> batches(4);
///   co_await batches.send(x);                       // one coroutine
///   while (auto x = co_await batches.receive()) ... // another; ends after close()
template <class T>
class channel {
  static_assert(std::is_object_v<T> && std::is_nothrow_move_constructible_v<T>,
                "weft: a channel carries values that can be moved without an exception, so that "
                "none is lost between sender and receiver");

 public:
  using value_type = T;

  /// Room for `capacity` values that are not yet received; its memory is allocated here. Throws
  /// rpc_error invalid_argument if it is 0.
  explicit channel(std::size_t capacity);

  /// Waits for room. If the channel is closed, also during the wait, throws rpc_error closed. Then,
  /// or if the wait is cancelled, the value is lost.
  [[nodiscard]] asio::awaitable<void> send(T value) const {
    return send_in_turn(*this, std::move(value));
  }
  /// If there is no room, others wait for it, or the channel is closed: returns false, and leaves
  /// `value` alone.
  [[nodiscard]] bool try_send(T&& value) const;
  [[nodiscard]] bool try_send(const T& value) const { return try_send(T(value)); }

  /// Waits for the oldest value; std::nullopt once the channel is closed and empty.
  [[nodiscard]] asio::awaitable<std::optional<T>> receive() const { return receive_in_turn(*this); }
  /// The oldest value, if there is one and nobody waits for it.
  [[nodiscard]] std::optional<T> try_receive() const;

  /// From now on every send fails. Values in the channel are still received. Waiting coroutines
  /// resume. More calls do nothing.
  void close() const noexcept;
  [[nodiscard]] bool is_closed() const noexcept;

  /// Values that wait to be received.
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] std::size_t capacity() const noexcept;

 private:
  [[nodiscard]] static asio::awaitable<void> send_in_turn(channel self, T value);
  [[nodiscard]] static asio::awaitable<std::optional<T>> receive_in_turn(channel self);

  intrusive_ptr<detail::channel_state<T>> state_;
};

}  // namespace weft

#include <weft/core/impl/channel.hpp>
