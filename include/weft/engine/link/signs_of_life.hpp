// SPDX-License-Identifier: BSL-1.0
// Whether the peer of a link lives, by what comes from it and by what it takes; and when this side
// has to show that it does. No clock: who asks says how long ago it asked last.
#pragma once

#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>

#include <cstdint>
#include <utility>

namespace weft::engine {

/// Of one connection. Not thread-safe.
class signs_of_life {
 public:
  enum class verdict : std::uint8_t {
    alive,
    silent,  ///< nothing came from it for too long
    stuck,   ///< it took nothing of what was written to it for too long
  };
  struct limits {
    duration lost_after;   ///< 0: silence is never too long
    duration stall_limit;  ///< longer than 0
  };
  /// What is seen of the connection. The counters only grow; any unit.
  struct seen {
    std::uint64_t received = 0;
    std::uint64_t written = 0;
    bool writing = false;    ///< a write is under way
    bool peer_busy = false;  ///< by its own word, the thread that reads there is
  };

  /// Whether nothing was written since the last call, so that a ping is due.
  [[nodiscard]] bool quiet(std::uint64_t written) noexcept {
    return written == std::exchange(beaten_, written);
  }

  /// `interval` after the last call. Time counts only while somebody asks: what came while nobody
  /// did is still to be read.
  [[nodiscard]] verdict judge(const seen& now, duration interval, const limits& most) noexcept {
    const bool came = now.received != std::exchange(received_, now.received);
    const bool went = now.written != std::exchange(written_, now.written);
    silent_ = came ? duration{} : silent_ + interval;
    stuck_ = !now.writing || went || now.peer_busy ? duration{} : stuck_ + interval;
    if (most.lost_after > duration{} && silent_ >= most.lost_after) return verdict::silent;
    if (now.writing && stuck_ >= most.stall_limit) return verdict::stuck;
    return verdict::alive;
  }

 private:
  std::uint64_t beaten_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t written_ = 0;
  duration silent_{};
  duration stuck_{};
};

}  // namespace weft::engine
