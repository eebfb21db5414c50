// SPDX-License-Identifier: BSL-1.0
// What a worker does from the end of its run until it leaves: pure states, no sockets, no clock.
//
//   state               what is done on entering it          left when                at the latest
//   telling             what ended the run is passed on      it is sent               1 s, or *
//   awaiting_dismissal  nothing: only who failed comes here  link to rank 0 is down   1 s
//   failing_calls       waiting calls fail                   losses have been told    1 s
//   stopping_main       what waits in services fails, and    it has ended             1 s
//                       is handed on, which takes up to 1 s;
//                       main is cancelled
//   sending_rest        after a good end, services let go,   all is sent              1 s, or *
//                       by the deadline
//   leaving_last        nothing: only rank 0 comes here      the others have left     5 s
//   closing             links are closed                     main has ended           0.1 s
//   over
//
// The first four come after a failure only. No time reaches beyond the deadline; * is the deadline
// itself: at ranks that tell rank 0, and after a good end.
#pragma once

#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace weft::engine {

/// The end of one worker's run. The worker does what `now` says, then asks `step` until it goes on.
class ending {
 public:
  enum class state : std::uint8_t {
    telling,
    awaiting_dismissal,
    failing_calls,
    stopping_main,
    sending_rest,
    leaving_last,
    closing,
    over
  };
  /// What a state waits for.
  enum class condition : std::uint8_t {
    all_sent,             ///< on every link that is not down
    sent_to_rank_0,       ///< or the link to it is down
    link_to_rank_0_down,  ///< it was closed from there
    losses_told,          ///< of links that are down, to everybody here
    main_ended,
    others_left  ///< no link to another worker is up
  };
  enum class place : std::uint8_t { rank_0, elsewhere };
  /// What ended the run.
  enum class cause : std::uint8_t { all_done, own_failure, anothers_failure };

  /// At `over` the run has ended, and `ends_by` is until when what is left of it should have: at
  /// least a second is left, as what was cut still has to be told, and what failed to end.
  ending(place where, cause why, time_point over, time_point ends_by)
      : where_(where),
        why_(why),
        deadline_(std::max(ends_by, later(over, soon))),
        state_(why == cause::all_done ? state::sending_rest : state::telling) {}

  [[nodiscard]] state current_state() const noexcept { return state_; }
  [[nodiscard]] condition awaits() const noexcept {
    switch (state_) {
    case state::telling:
      // Rank 0 must hear of it, or it would wait for ever; and it before others, who would only
      // see a closed connection.
      return where_ == place::rank_0 ? condition::all_sent : condition::sent_to_rank_0;
    case state::awaiting_dismissal:
      return condition::link_to_rank_0_down;
    case state::failing_calls:
      // Whoever waits for a call hears why it failed before it hears that all is over.
      return condition::losses_told;
    case state::sending_rest:
      return condition::all_sent;
    case state::leaving_last:
      return condition::others_left;
    case state::stopping_main:
    case state::closing:
    case state::over:
      break;
    }
    return condition::main_ended;
  }
  /// Until when this state, or what is done in it, may last, if it begins now.
  [[nodiscard]] time_point by(time_point now) const noexcept {
    switch (state_) {
    case state::telling:
      // That rank 0 hears of it is worth all the time that there is.
      return where_ == place::rank_0 ? within(now, soon) : deadline_;
    case state::over:
      return deadline_;
    case state::sending_rest:
      return why_ == cause::all_done ? deadline_ : within(now, soon);
    case state::leaving_last:
      return within(now, std::chrono::seconds(5));
    case state::closing:
      return within(now, std::chrono::milliseconds(100));
    case state::awaiting_dismissal:
    case state::failing_calls:
    case state::stopping_main:
      break;
    }
    return within(now, soon);
  }

  /// Goes on if what the state waits for `holds(condition)`, or its time is over; it begins with
  /// the first question in it. Whether it went on.
  template <class Holds>
  bool step(Holds&& holds, time_point now) {
    if (state_ == state::over) return false;
    if (!until_) until_ = by(now);
    if (!holds(awaits()) && now < *until_) return false;
    state_ = next();
    until_.reset();
    return true;
  }

 private:
  static constexpr duration soon = std::chrono::seconds(1);

  [[nodiscard]] time_point within(time_point now, duration d) const noexcept {
    return std::min(deadline_, later(now, d));
  }
  [[nodiscard]] state next() const noexcept {
    switch (state_) {
    case state::telling:
      // Rank 0 answers the one that failed by closing the link.
      return where_ == place::elsewhere && why_ == cause::own_failure ? state::awaiting_dismissal
                                                                      : state::failing_calls;
    case state::awaiting_dismissal:
      return state::failing_calls;
    case state::failing_calls:
      return state::stopping_main;
    case state::stopping_main:
      return state::sending_rest;
    case state::sending_rest:
      // Rank 0 leaves last, so that nobody mistakes its leaving for a loss.
      return where_ == place::rank_0 ? state::leaving_last : state::closing;
    case state::leaving_last:
      return state::closing;
    case state::closing:
    case state::over:
      break;
    }
    return state::over;
  }

  place where_;
  cause why_;
  time_point deadline_;
  state state_;
  std::optional<time_point> until_;  // of this state, once it has begun
};

}  // namespace weft::engine
