// SPDX-License-Identifier: BSL-1.0
// A frame's bytes on the wire, and a frame_assembler that is fed with them by hand.
#pragma once

#include <weft/transport/frame_assembler.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace weft::testing {

inline std::vector<std::byte> wire(const frame& f) {
  std::vector<std::byte> all(f.head.view().begin(), f.head.view().end());
  for (const auto& b : f.blobs) all.insert(all.end(), b.data(), b.data() + b.size());
  return all;
}

/// Feeds all of `bytes`, at most step() at once, in pieces as `room` says; the error that stopped
/// it, if any.
template <class Step>
std::optional<error> feed(frame_assembler& a, frame_sink& s, std::span<const std::byte> bytes,
                          Step&& step) {
  std::array<asio::mutable_buffer, 8> room;
  while (!bytes.empty()) {  // bounded: by the bytes, for each turn takes some
    const std::size_t pieces = a.room(room, s.bounds());
    std::size_t left = std::min<std::size_t>(step(), bytes.size());
    std::size_t taken = 0;
    for (std::size_t i = 0; i < pieces && left > 0; ++i) {
      const std::size_t n = std::min(left, room[i].size());
      std::memcpy(room[i].data(), bytes.data() + taken, n);
      taken += n;
      left -= n;
    }
    if (taken == 0) return error(errc::worker_failed, "no room");
    bytes = bytes.subspan(taken);
    if (auto done = a.arrived(taken, s); !done) return done.error();
  }
  return std::nullopt;
}

}  // namespace weft::testing
