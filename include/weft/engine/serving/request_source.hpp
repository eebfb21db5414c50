// SPDX-License-Identifier: BSL-1.0
// Where requests come from: a link, as whoever serves its requests sees it. The one implementation
// is engine/link/link.hpp.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/link.hpp>
#include <weft/wire/frame.hpp>
#include <weft/wire/message.hpp>

#include <atomic>
#include <cstdint>

namespace weft::engine {

/// The requests that a link carried since it was made. Any thread.
struct request_counts {
  std::atomic<std::uint64_t> sent{0};      ///< raised before the request can arrive
  std::atomic<std::uint64_t> finished{0};  ///< raised after all that its function sent
  // Of these, the posts:
  std::atomic<std::uint64_t> posted{0};   ///< to the peer
  std::atomic<std::uint64_t> arrived{0};  ///< from the peer, as the next two
  std::atomic<std::uint64_t> cut{0};      ///< ... that did not run to their end, and nobody is told
  std::atomic<std::uint64_t> ended{0};    ///< ... these included; raised after `cut`
};

class request_source : public weft::link {
 public:
  [[nodiscard]] link_host& self() const noexcept { return me_; }

  request_counts requests;

  /// Lets services attach, frames the message and queues it; says the frame's number, or `no_room`
  /// if other threads took the room that a request had found. Whatever is thrown on the way is the
  /// error, which means not sent. `flush` follows. Any thread.
  virtual expected<std::uint64_t> queue(message&& m, const frame_header& header) noexcept = 0;
  static constexpr std::uint64_t no_room = ~std::uint64_t{0};
  /// The same, of large tensors only.
  static constexpr std::uint64_t no_bulk_room = no_room - 1;
  [[nodiscard]] static constexpr bool is_crowded_out(std::uint64_t number) noexcept {
    return number >= no_bulk_room;
  }

  // ── what comes back out of the inbox, worker's thread ──
  virtual void handle_here(frame&& f, error allocation_error) = 0;
  virtual void start_coroutine(intrusive_ptr<served_request> call) = 0;

  // ── requests that wait for their objects ──
  /// Watches those that it has read. Worker's thread.
  virtual void watch_waits() = 0;
  /// The wait of that number needs no watch any more. Any thread.
  virtual void unwatched(std::uint64_t number) noexcept = 0;
  /// The object, or why there is none, is there. Any thread, unless it is of a coroutine function.
  virtual void object_found(const intrusive_ptr<served_request>& call) noexcept = 0;
  /// The wait ended before, by `call->failure`. Worker's thread.
  virtual void object_missed(const intrusive_ptr<served_request>& call) noexcept = 0;

  // ── a request that came over this link is no longer served; any thread ──
  virtual void begin_forward(served_request& call) = 0;
  virtual void end_forward(served_request& call) noexcept = 0;
  virtual void forget(served_request& call) noexcept = 0;

 protected:
  request_source(link_host& me, std::uint32_t rank) noexcept;

  link_host& me_;
};

}  // namespace weft::engine
