// SPDX-License-Identifier: BSL-1.0
// Streams: a function writes items while its caller reads them, or the other way round, or both.
//
//   asio::awaitable<void> batches(std::string path, weft::sink<at::Tensor> out) {  // at the loader
//     for (reader r(path); auto b = r.next();) co_await out.write(*b);
//   }
//   auto [in] = co_await me.peer("loader").open<&batches>("digits.csv");
//   while (auto batch = co_await in.next()) train(*batch);
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rref/detail/port.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

namespace weft {

namespace detail {
template <class T>
struct stream_writer;
struct opened_call;
struct stream_access;
}  // namespace detail

/// The end that writes; a parameter of a function, or what `peer::open` gives. Items are values of
/// any type that can be sent. They arrive in order. As with `post`, autograd does not record them,
/// and a tensor that requires grad arrives detached: what needs gradients is a call. At most 64
/// items and 4 MiB (and one item) are on their way and not taken; then `write` waits, and nothing
/// else does. Move-only; for coroutines on the worker's executor, one at a time.
///
/// Dropped unfinished, the reader gets `cancelled`, or what ended the function. A function that
/// returns without an error has finished. When the last end of an opened call is gone, the call is
/// cancelled, also behind a `finish` that did not wait for the function.
template <class T>
class [[nodiscard]] sink {
 public:
  using value_type = T;

  /// Waits while the window is full: for the limit, else as long as a call, and not beyond the
  /// scope's deadline. Then the item is on its way. Errors: closed (the reader has dropped its end,
  /// or the function has returned), what the function threw, peer_died, timed_out, cancelled,
  /// too_many_calls (other threads took the room), not_encodable: then it was not written; and
  /// invalid_argument (finished, or empty).
  [[nodiscard]] asio::awaitable<void> write(T item, std::optional<within> limit = std::nullopt);
  /// No more items come. Waits until the reader's worker has heard it; the last sink of a function
  /// without sinks, until that has returned, and throws what it threw. A wait that ended at its
  /// limit can be begun again. Else errors as of `write`; closed only if items were not taken.
  [[nodiscard]] asio::awaitable<void> finish(std::optional<within> limit = std::nullopt);

  /// From now on fewer items, or bytes, are on their way: from 1 to the 64 and 4 MiB. With 1 or 2
  /// items, readers that share a source get items as they take them.
  void set_window(std::uint64_t items, std::uint64_t bytes = detail::stream_window::bytes);

  [[nodiscard]] explicit operator bool() const noexcept { return writer_.state || to_; }

 private:
  friend struct detail::stream_access;
  friend struct codec<sink>;

  rref<detail::port<T>> to_;  // of an argument that is to be sent
  detail::held_end<detail::stream_writer<T>> writer_;
  intrusive_ptr<detail::opened_call> call_;
};

/// The end that reads; else as `sink`. What it keeps of items is at most the window. Dropped, the
/// writer gets `closed`.
template <class T>
class [[nodiscard]] stream {
 public:
  using value_type = T;

  /// The next item; std::nullopt at the end. Waits for the limit, else as long as a call, and not
  /// beyond the scope's deadline; a later call goes on where this one was. Errors, behind all items
  /// that came: what the function threw, peer_died, cancelled (also: the writer dropped its end
  /// unfinished), timed_out, invalid_argument (empty).
  [[nodiscard]] asio::awaitable<std::optional<T>> next(std::optional<within> limit = std::nullopt);

  [[nodiscard]] explicit operator bool() const noexcept { return queue_.state || from_; }

 private:
  friend struct detail::stream_access;
  friend struct codec<stream>;

  rref<detail::port<T>> from_;  // of an argument that is to be sent
  detail::held_end<detail::port_queue<T>> queue_;
  worker* me_ = nullptr;
  intrusive_ptr<detail::opened_call> call_;
};

}  // namespace weft

#include <weft/rref/impl/stream.hpp>
