// SPDX-License-Identifier: BSL-1.0
// What is said to who sends a request when there is no room for it.
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/worker.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace weft::detail {

/// "256 MiB".
[[nodiscard]] inline std::string bytes_in_words(std::uint64_t bytes) {
  if (bytes % (1u << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  if (bytes % (1u << 10) == 0) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " bytes";
}

/// Names the limit that was reached; both limits in bytes, where either may be the one.
[[noreturn]] inline void refuse_crowd(const link& to) {
  const options& o = to.self().settings();
  const std::size_t waiting = to.waiting();
  std::string full;
  if (waiting >= o.outbox_frames) {
    full = std::to_string(o.outbox_frames) +
           " frames wait in the outbox, as many as may (options.outbox_frames)";
  } else {
    full = "the window that the peer grants (" +
           bytes_in_words(to.self().members().members[to.rank()].window) +
           ", its options.window_bytes)";
    if (waiting > 0) {
      full += " or the outbox (" + bytes_in_words(o.outbox_bytes) + ", options.outbox_bytes)";
    }
    full += " is full";
  }
  throw rpc_error(error(errc::too_many_calls, std::move(full)).with([&](error_detail& d) {
    d.peer = to.name();
  }));
}

}  // namespace weft::detail
