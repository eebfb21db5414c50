// SPDX-License-Identifier: BSL-1.0
// What is said to who sends a request when there is no room for it.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/worker.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::engine {

/// "256 MiB".
[[nodiscard]] inline std::string bytes_in_words(std::uint64_t bytes) {
  if (bytes % (1u << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  if (bytes % (1u << 10) == 0) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " bytes";
}

/// Names the limit that was reached; both limits in bytes, where either may be the one.
[[nodiscard]] inline std::string limit_in_words(const weft::link& to) {
  const options& o = to.self().settings();
  const std::size_t waiting = to.waiting();
  if (waiting >= o.outbox_frames) {
    return std::to_string(o.outbox_frames) +
           (o.outbox_frames == 1 ? " frame waits" : " frames wait") +
           " in the outbox, which is full (options.outbox_frames)";
  }
  std::string full = "the window that the peer grants (" +
                     bytes_in_words(to.self().members().members[to.rank()].window) +
                     ", its options.window_bytes)";
  if (waiting > 0) {
    full += " or the outbox (" + bytes_in_words(o.outbox_bytes) + ", options.outbox_bytes)";
  }
  return full + " is full";
}

/// Of one that does not wait.
[[nodiscard]] inline error no_room_now(const weft::link& to) {
  return error(errc::too_many_calls, limit_in_words(to) + "; a call that is awaited waits for room")
      .with([&](error_detail& d) { d.peer = to.name(); });
}

/// Of a call that waited for room in vain.
[[nodiscard]] inline error waited_in_vain(const weft::link& to) noexcept {
  return or_die([&] {
    return error(errc::timed_out,
                 "there was no room for the call until its deadline: " + limit_in_words(to));
  });
}

}  // namespace weft::engine
