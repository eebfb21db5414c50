// SPDX-License-Identifier: BSL-1.0
// Bodies of ../worker.hpp: what is done and waited for in the states of a run's end.
#pragma once

#include <weft/core/detail/next_turn.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/event.hpp>
#include <weft/engine/shutdown/ending.hpp>
#include <weft/engine/worker/impl/worker.hpp>
#include <weft/engine/worker/worker.hpp>

#include <algorithm>
#include <chrono>
#include <optional>

namespace weft::engine {

/// What is to be done in that state of the end; `result` is what the run ends with.
inline asio::awaitable<void> worker::enter_state(const ending& end, const error& result,
                                                 future<void>& running) {
  using state = ending::state;
  const auto& failure = run_.failure();
  const auto culprit = failure ? std::optional(failure->first) : std::nullopt;
  const auto run_ended = [&] {
    return error(errc::peer_died, "the run ended: worker '" +
                                      members_.members[failure->first].name +
                                      "': " + failure->second);
  };
  switch (end.current_state()) {
  case state::telling:
    // Nobody waits to tell it what it will not hear.
    if (culprit != rank() && rank() != 0) links_[*culprit].mark_down(result);
    relay_verdict();
    break;
  case state::failing_calls: {
    // The others are well: calls to them end, but no service may think that they are gone.
    const error others = run_ended();
    links_.do_to_all([culprit, result, others](link& l) {
      l.fail_calls(l.rank() == culprit ? result : others);
    });
    break;
  }
  case state::stopping_main: {
    // What a service has heard of the culprit meanwhile says more than this.
    const error no_more = run_ended().with([&](error_detail& d) {
      if (culprit != rank()) d.peer = members_.members[*culprit].name;
    });
    for (const auto& s : services_) {
      if (s) s->fail_waits(no_more);
    }
    co_await run_pending_handlers(end.by(env_.time.now()));
    running.request_stop();
    break;
  }
  case state::sending_rest: {
    const time_point deadline = end.by(env_.time.now());
    for (const auto& s : services_) {
      if (s && !failure) co_await s->stop(deadline);
    }
    break;
  }
  case state::closing:
    close_all();
    break;
  case state::awaiting_dismissal:
  case state::leaving_last:
  case state::over:
    break;
  }
}

inline bool worker::is_met(ending::condition c, const future<void>& main_) const {
  using condition = ending::condition;
  switch (c) {
  case condition::all_sent:
    return all_sent();
  case condition::sent_to_rank_0:
    return !links_.find(0) || sent(*links_.find(0));
  case condition::link_to_rank_0_down:
    return !links_.find(0) || links_.find(0)->current_state() == link::state::down;
  case condition::losses_told:
    return std::all_of(links_.begin(), links_.end(), [](const link& l) { return l.settled(); });
  case condition::main_ended:
    return main_.ready();
  case condition::others_left:
    return std::all_of(links_.begin(), links_.end(), [this](const link& l) {
      return l.rank() == rank() || l.current_state() != link::state::up;
    });
  }
  return true;
}

/// To those whom rank 0's own word may not have reached yet, before they see a link closed.
inline void worker::relay_verdict() {
  for (const link& l : links_) {
    if (l.rank() == 0 || l.rank() == rank() || l.current_state() != link::state::up) continue;
    const auto words = run_.final_message();
    if (words && words->rank != l.rank()) send_control(l.rank(), *words);
  }
}

inline bool worker::sent(const link& l) {
  return l.current_state() == link::state::down || l.waiting() == 0;
}
inline bool worker::all_sent() const {
  return std::all_of(links_.begin(), links_.end(), [](const link& l) { return sent(l); });
}

/// Whoever was told something tells the one that waits for it in a later turn, and so on: a main
/// that waits through others hears why they failed before it is cancelled. A few turns are made
/// though the time is over.
inline asio::awaitable<void> worker::run_pending_handlers(time_point deadline) {
  constexpr int most = 64;
  constexpr int always = 8;
  for (int i = 0; i < most && (i < always || env_.time.now() < deadline); ++i) {
    co_await detail::next_turn(env_.context);
  }
}

inline void worker::close_all() noexcept {
  env_.transports.close();
  links_.do_to_all([](link& l) { l.close(); });
}

/// A millisecond; for the end of a run only.
inline asio::awaitable<void> worker::poll_interval(timer& moment) {
  const intrusive_ptr<event> tick = make_intrusive<event>();
  arm_or_die(moment, env_.time.now() + std::chrono::milliseconds(1), [tick] { tick->set(); });
  co_await event::wait(tick);
}

}  // namespace weft::engine
