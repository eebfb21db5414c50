// SPDX-License-Identifier: BSL-1.0
// When the helper reads a worker's links: the decision, without clock, thread or socket.
//
//             something came, or waits to be written
//   asleep ───────────────────────────────────────────► watching: looks at each tick
//     ▲   the worker answers, and nothing else moves │      ▲
//     └──────────────────────────────────────────────┘      │ the worker answers
//                       the worker has not answered for     │
//                       one tick: it is in a long handler   ▼
//                                                        reading
//
// A probe is a post to the worker's thread; its answer says that this thread has come back to its
// loop. It is sent only when nothing else says so.
#pragma once

#include <cstdint>
#include <utility>

namespace weft::engine {

/// Not thread-safe.
class takeover {
 public:
  enum class state : std::uint8_t { asleep, watching, reading };
  /// What the helper does next, in this order.
  struct steps {
    bool wait = false;   ///< for arrivals, from now on
    bool probe = false;  ///< the worker's thread
    bool read = false;   ///< all that has come
    bool tick = false;   ///< again, soon
    bool later = false;  ///< ... or later, as the worker's thread is well
  };

  [[nodiscard]] state current_state() const noexcept { return state_; }

  /// A tick. `activity`: how often the worker's thread has been at its loop, by what it did there.
  /// `answered`: it has run the last probe.
  [[nodiscard]] steps ticked(std::uint64_t activity, bool answered) noexcept {
    const bool moved =
        std::exchange(came_, false) || activity != std::exchange(activity_, activity);
    if (probing_ && !answered) {
      state_ = state::reading;
      return {.wait = true, .read = true};
    }
    const bool was_idle = std::exchange(probing_, false) && state_ == state::watching && !moved;
    state_ = was_idle ? state::asleep : state::watching;
    if (was_idle) return {};
    probing_ = !moved;
    return {.wait = probing_, .probe = probing_, .tick = probing_, .later = moved};
  }
  /// Something has come, for which it waited.
  [[nodiscard]] steps arrived(bool answered) noexcept {
    switch (state_) {
    case state::asleep:
      state_ = state::watching;
      probing_ = true;
      return {.wait = true, .probe = true, .tick = true};
    case state::watching:
      came_ = true;
      return {};
    case state::reading:
      if (!answered) return {.wait = true, .read = true};
      state_ = state::watching;
      probing_ = false;
      return {.tick = true};
    }
    return {};
  }

 private:
  state state_ = state::asleep;
  bool probing_ = false;  // a probe is out, or its answer has not been looked at
  bool came_ = false;
  std::uint64_t activity_ = 0;
};

}  // namespace weft::engine
