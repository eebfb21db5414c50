// SPDX-License-Identifier: BSL-1.0
// How two workers come to one connection, the same at both, though each may open some: pure
// decisions, no sockets, no clock.
//
//   idle ──want──► connecting ──installed──► up
//     ▲                │ one of ours is being opened, or one of theirs was welcomed, or neither is
//     └── nobody waits ┘                          any ──lose──► down
#pragma once

#include <weft/rpc/link.hpp>

#include <cstdint>
#include <utility>

namespace weft::engine {

/// One worker's half. Not thread safe.
class pairing {
 public:
  using state = weft::link::state;
  /// Of two that are opened at once, the one that the lower rank opened stays.
  pairing(std::uint32_t self, std::uint32_t peer) noexcept : ours_stays_(self < peer) {}

  [[nodiscard]] state current_state() const noexcept { return now_; }
  /// To be connected from now on, though nothing waits to be sent.
  void keep_up() noexcept { wanted_ = true; }
  /// Something is to be sent. True: nobody had wanted it before, so `open` is to be asked.
  [[nodiscard]] bool want() noexcept {
    if (now_ != state::idle) return false;
    now_ = state::connecting;
    return true;
  }

  /// Whether a connection is to be opened now: its end is told by `failed`, `dropped` or `install`.
  [[nodiscard]] bool open() noexcept {
    if (now_ != state::connecting || opening_ || reserved_) return false;
    opening_ = true;
    return true;
  }
  /// The one that was being opened is none. Whether that matters: nothing else is under way.
  [[nodiscard]] bool failed() noexcept {
    opening_ = false;
    return now_ == state::connecting && !reserved_;
  }
  /// After a failure that matters: whether another one is to be opened, later.
  [[nodiscard]] bool tries_again(bool something_waits) noexcept {
    if (something_waits || wanted_) return true;
    now_ = state::idle;
    return false;
  }

  /// Whether a connection that the peer opened is taken. `yes`: no other one is opened or taken
  /// until it is installed or lost.
  enum class welcome : std::uint8_t { yes, another_stays, down };
  [[nodiscard]] welcome reserve() noexcept {
    if (now_ == state::down) return welcome::down;
    if (reserved_ || now_ == state::up || (opening_ && ours_stays_)) return welcome::another_stays;
    now_ = state::connecting;
    reserved_ = true;
    return welcome::yes;
  }
  /// The one that was welcomed is lost before it was installed. True: `open` is to be asked.
  [[nodiscard]] bool unreserve(bool something_waits) noexcept {
    reserved_ = false;
    if (now_ != state::connecting || opening_ || wanted_ || something_waits) return true;
    now_ = state::idle;
    return false;
  }

  /// What was opened or welcomed could not be installed. `open` is to be asked.
  void dropped() noexcept { opening_ = reserved_ = false; }
  /// A connection is ready. False: it is not needed, close it.
  [[nodiscard]] bool install() noexcept {
    dropped();
    if (now_ == state::up || now_ == state::down) return false;
    now_ = state::up;
    return true;
  }
  /// For good. False: it was lost before.
  bool lose() noexcept { return std::exchange(now_, state::down) != state::down; }

 private:
  bool ours_stays_;
  state now_ = state::idle;
  bool opening_ = false;
  bool reserved_ = false;
  bool wanted_ = false;
};

}  // namespace weft::engine
