// SPDX-License-Identifier: BSL-1.0
// A bounded queue between coroutines: who sends more than it holds waits, and who receives when it
// is empty.
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

/// A handle: copies share one queue, which goes with the last of them. Values arrive in the order
/// in which they were sent, each at one receiver; those who wait are served in turn. Thread safe;
/// each wait resumes on its coroutine's executor. Coroutines that still wait are destroyed with
/// their io_context, with what they were given last. T is moved and destroyed under its lock, and
/// must not use the channel there. Waits have no deadline of their own (`with_deadline`); a
/// cancelled one throws system_error operation_aborted, and has sent or received nothing.
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

  /// Room for so many values that nobody has received yet, taken at once. Throws rpc_error
  /// invalid_argument if it is 0.
  explicit channel(std::size_t capacity);

  /// Waits for room. Throws rpc_error closed if it is closed, also while it waits: the value is
  /// lost then, as it is when the wait is cancelled.
  [[nodiscard]] asio::awaitable<void> send(T value) const {
    return send_in_turn(*this, std::move(value));
  }
  /// False if there is no room, if others wait for it, or if it is closed; `value` is left alone
  /// then.
  [[nodiscard]] bool try_send(T&& value) const;
  [[nodiscard]] bool try_send(const T& value) const { return try_send(T(value)); }

  /// The oldest value; waits for one. Nothing once it is closed and empty.
  [[nodiscard]] asio::awaitable<std::optional<T>> receive() const { return receive_in_turn(*this); }
  /// The oldest value, if there is one and nobody waits for it.
  [[nodiscard]] std::optional<T> try_receive() const;

  /// Nothing is sent any more; what it holds is still received. Whoever waits is told. More calls
  /// do nothing.
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
