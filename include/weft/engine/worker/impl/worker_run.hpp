// SPDX-License-Identifier: BSL-1.0
// Bodies of ../worker.hpp: a run, from its mains to its end.
#pragma once

#include <weft/core/detail/next_turn.hpp>
#include <weft/core/detail/what_of.hpp>
#include <weft/engine/worker/impl/worker.hpp>
#include <weft/engine/worker/worker.hpp>

#include <algorithm>

namespace weft::engine {

/// "12.0 s"
inline std::string in_seconds(duration d) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(d).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

// ── the run ──

inline void worker::send_control(std::uint32_t rank, const shutdown_message& m) {
  message out(options_.bounds);
  out.payload().number(m.what);
  out.payload().number(m.rank);
  codec<std::string>::encode(out.payload(), m.why.substr(0, most_words));
  if (shutdown_message::has_round(m.what)) out.payload().number(m.round);
  if (shutdown_message::has_report(m.what)) {
    out.payload().number(static_cast<std::uint32_t>(m.report.size()));
    for (const peer_counts& c : m.report) {
      out.payload().number(c.peer);
      out.payload().number(c.sent);
      out.payload().number(c.finished);
      out.payload().number(static_cast<std::uint8_t>(c.down ? 1 : 0));
    }
  }
  frame_header header;
  header.kind = frame_kind::control;
  link& to = links_[rank];
  if (to.append(std::move(out).finish(header))) to.flush();
}

inline void worker::control(link& from, incoming_message& m) {
  shutdown_message what;
  try {
    reader r = m.payload();
    const auto kind = r.number<std::uint8_t>();
    what.what = static_cast<shutdown_message::kind>(kind);
    what.rank = r.number<std::uint32_t>();
    what.why = fit_to_show(codec<std::string>::decode(r));
    if (shutdown_message::has_round(what.what)) what.round = r.number<std::uint64_t>();
    if (shutdown_message::has_report(what.what)) {
      const auto n = r.number<std::uint32_t>();
      if (n > members_.size()) r.fail("more counts than workers");
      for (std::uint32_t i = 0; i < n; ++i) {
        peer_counts& c = what.report.emplace_back();
        c.peer = r.number<std::uint32_t>();
        c.sent = r.number<std::uint64_t>();
        c.finished = r.number<std::uint64_t>();
        c.down = r.number<std::uint8_t>() != 0;
      }
    }
    r.finish();
  } catch (const rpc_error& e) {
    from.mark_down(
        error(errc::protocol_error, "an unreadable control frame: " + e.error().message()));
    return;
  }
  if (const auto todo = run_.received(from.rank(), what)) return act(*todo);
  from.mark_down(error(errc::protocol_error, "a control frame that breaks the run's protocol"));
}

inline void worker::lost(link& peer, const error& reason) {
  // Whoever tells it names the peer; a peer that died needs no other word for it.
  std::string why = reason.detail().text;
  if (reason != errc::peer_died || why.empty()) {
    why = reason.code().message() + (why.empty() ? "" : ": ") + why;
  }
  act(peer.rank() == rank() ? run_.main_failed(rank(), "its link to itself: " + why)
                            : run_.link_lost(peer.rank(), why));
  const bool of_others = rank() != 0 && peer.rank() != 0 && peer.rank() != rank();
  if (of_others) count_posts(peer, std::move(why));
}

/// Whoever leaves because the run has failed is well: its users hear of the one that is not.
inline error worker::loss_reason(std::uint32_t peer, const error& reason) const noexcept {
  const auto& failure = run_.failure();
  if (!failure || !only_leaves(peer)) return reason;
  return reason.with([&](error_detail& d) {
    d.text =
        "the run ended: worker '" + members_.members[failure->first].name + "': " + failure->second;
  });
}

inline void worker::act(const shutdown_protocol::actions& todo) {
  for (const auto& [rank, m] : todo.send) send_control(rank, m);
  if (todo.lost) {
    const auto& [rank, why] = *todo.lost;
    links_[rank].write_now();  // it may be told so, in what was sent above
    links_[rank].mark_down(
        error(errc::peer_died, why, call_progress::maybe_executed, origin::transport));
  }
  if (todo.lost && rank() == 0 && env_.says_losses && !run_.over()) {
    say(name(), named(todo.lost->first) + " was lost: " + todo.lost->second +
                    "; the run goes on without it");
  }
  if (todo.wait_for) wait_for_other_end(*todo.wait_for);
  if (todo.cut) judge_cut(*todo.cut);
  if (todo.end) ended_->set();
  if (todo.count) {
    asked_at_ = env_.time.now();
    bound_the_end();
    answer_count(*todo.count);
  }
  if (todo.ask_again) {
    if (!again_) again_ = env_.time.make_timer(env_.context);
    arm_or_die(*again_, env_.time.now() + *todo.ask_again, [this] { act(run_.ask_again()); });
  }
}

/// What was finished is read before what was sent: a function sends before it is finished.
inline work_report worker::report() const {
  work_report before;
  for (const link& l : links_) before.push_back({l.rank(), 0, l.requests.finished.load(), false});
  work_report all;
  auto seen = before.begin();
  for (const link& l : links_) {  // with those that were made meanwhile
    peer_counts& c = all.emplace_back();
    c.peer = l.rank();
    if (seen != before.end() && seen->peer == c.peer) c.finished = (seen++)->finished;
    c.sent = l.requests.sent.load();
    if (l.current_state() != link::state::down) continue;
    c.down = l.broke();
    if (!c.down) c.sent = 0;
  }
  std::erase_if(all, [](const peer_counts& c) { return c == peer_counts{c.peer, 0, 0, false}; });
  return all;
}

/// How long others may take to answer, of the time that they have in all.
inline duration time_to_answer(duration of) {
  return std::clamp<duration>(of / 4, std::chrono::milliseconds(250), std::chrono::seconds(10));
}

/// Calls `then` at that time; if this thread was busy when it came, only after it has had time for
/// what arrived meanwhile: nobody is to be called silent whom it did not listen to.
inline void worker::alarm(std::unique_ptr<timer>& by, time_point when, duration grace,
                          std::function<void()> then) {
  if (!by) by = env_.time.make_timer(env_.context);
  arm_or_die(*by, when, [this, &by, when, grace, then = std::move(then)]() mutable {
    if (!by) return;
    const time_point now = env_.time.now();
    if (now < later(when, grace)) return then();
    alarm(by, now + grace, grace, std::move(then));
  });
}

/// Tells the protocol without whom the run goes on.
inline void worker::apply_loss_policy() {
  for (std::uint32_t r = 0; r < members_.size(); ++r) {
    if (options_.on_loss.goes_on_without(members_.members[r].role)) run_.may_go(r);
  }
}

/// Whoever has not greeted rank 0 by then died before it could, or cannot reach it.
inline void worker::start_join_deadline() {
  if (members_.size() == 1) return;
  const duration limit = options_.rendezvous_deadline;
  alarm(greeted_, later(env_.time.now(), limit), time_to_answer(limit), [this, limit] {
    std::string names;
    std::vector<std::uint32_t> missing;
    for (std::uint32_t r = 0; r < members_.size(); ++r) {
      const bool expected = rank() == 0 ? r != 0 : r == 0;
      if (!expected || reached({rank(), r}) || run_.gone(r)) continue;
      missing.push_back(r);
      names += (names.empty() ? "" : ", ") + members_.members[r].name;
    }
    const std::string when = "within the rendezvous deadline of " + in_seconds(limit);
    // Each of them, as the run may go on without some; the first without which it does not ends it.
    for (const std::uint32_t r : missing) {
      const error last = links_[r].reason();  // of the last try to connect
      const std::string tried = last ? "; " + last.detail().text : "";
      act(run_.link_lost(r,
                         (rank() == 0 ? "it has not greeted rank 0 " + when + "; missing: " + names
                                      : "it, rank 0, has not answered the greeting " + when) +
                             tried));
    }
  });
}

/// Rank 0's main has returned; a user who wonders why the run goes on is told, until all have.
inline void worker::tell_of_waiting(duration after) {
  if (rank() != 0 || after <= duration::zero() || run_.over() || ends_by_) return;
  if (!waits_) waits_ = env_.time.make_timer(env_.context);
  arm_or_die(*waits_, later(env_.time.now(), after), [this] {
    std::string who;
    for (const std::uint32_t r : run_.running()) {
      who += (who.empty() ? "" : ", ") + ("'" + members_.members[r].name + "'");
    }
    say(name(), "its main has returned, and it serves until all have; it waits for " + who);
    tell_of_waiting(options_.still_waiting);
  });
}

/// Every main has returned: from now on the time counts.
inline void worker::bound_the_end() {
  if (ends_by_) return;
  waits_.reset();
  const duration limit = options_.shutdown_deadline;
  const duration grace = time_to_answer(limit);
  ends_by_ = later(env_.time.now(), limit);
  if (rank() == 0) {
    return alarm(over_, *ends_by_, no_limit, [this] { give_up_waiting(*ends_by_); });
  }
  // Rank 0 decides; its word comes first.
  alarm(over_, later(*ends_by_, grace), grace, [this, limit] {
    act(run_.link_lost(0, "it, rank 0, has not ended the run by the shutdown deadline of " +
                              in_seconds(limit)));
  });
}

/// Rank 0, at the deadline; if that decides nothing, once more half a grace later, for the verdict.
/// After a whole grace the others leave, and blame rank 0.
inline void worker::give_up_waiting(time_point due) {
  // No time is left to wait for the other ends of links that broke.
  for (auto which = run_.waits_for(); which; which = run_.waits_for()) act(run_.unanswered(*which));
  const auto missing = run_.unfinished();
  if (!missing) return;
  const std::string deadline = "the shutdown deadline of " + in_seconds(options_.shutdown_deadline);
  const auto requests = [](std::uint64_t n) {
    return std::to_string(n) + (n == 1 ? " request" : " requests");
  };
  const duration grace = time_to_answer(options_.shutdown_deadline);
  const time_point now = env_.time.now();
  if (now >= later(*ends_by_, grace * 3 / 4)) {
    return act(run_.cut(rank(),
                        "it was busy itself when " + deadline + " passed, and for too long after"));
  }
  const bool last = due > *ends_by_;
  const bool heard = last || now < later(due, grace / 4);  // else what has arrived comes first
  if (heard && !missing->unanswered.empty() && now - asked_at_ >= grace / 4) {
    std::string why = "it did not answer by " + deadline + " whether its requests are done";
    if (missing->all > 0) why += "; " + requests(missing->all) + " in the run were not";
    for (const std::uint32_t r : missing->unanswered) {
      act(last ? run_.cut(r, why) : run_.exclude(r, why));
    }
    if (run_.over()) return;
  } else if (last || (heard && missing->unanswered.empty() && missing->missing > 0)) {
    std::string why = "it had not counted all requests by " + deadline;
    if (missing->missing > 0) {
      why = requests(missing->missing) + " of worker '" + members_.members[missing->sender].name +
            "' not done by " + deadline;
      if (missing->all > missing->missing)
        why += ", " + std::to_string(missing->all) + " in the run";
    } else if (missing->growing) {
      why = "its requests were still increasing at " + deadline;
    }
    return act(run_.cut(missing->worker, why));
  }
  const time_point next = std::max(later(*ends_by_, grace / 2), later(now, grace / 4));
  alarm(over_, next, no_limit, [this, next] { give_up_waiting(next); });
}

inline void worker::handler_threw(std::exception_ptr what) noexcept {
  or_die([&] {
    std::string words = "a handler threw something that is not a std::exception";
    try {
      std::rethrow_exception(what);
    } catch (const std::exception& e) {
      words = "a handler threw: " + in_words(e);
    } catch (...) {
    }
    if (!thrown_) thrown_ = words;
    act(run_.main_failed(rank(), std::move(words)));
  });
}

inline std::vector<std::string> worker::still_running() {
  std::vector<std::string> out;
  for (const running_functions::entry& e : running().list(env_.time.now())) {
    out.push_back("function '" + e.function + "' called by worker '" + e.caller +
                  "' still runs on " + name() + "'s pool after " + in_seconds(e.age));
  }
  return out;
}

inline void worker::shutdown(const error& why) {
  or_die([&] { act(run_.main_failed(rank(), why.message())); });
}

/// The worker whose loss an error comes from, through however many calls; empty: none is known.
inline std::string lost_worker(const error& e) {
  std::string out;
  for (error c = e; c; c = c.cause()) {
    if (c == errc::peer_died || c == errc::rref_owner_died) out = c.detail().peer;
  }
  return out;
}

inline void worker::main_threw(std::exception_ptr what) {
  if (counts_first()) {
    threw_for_ = std::move(what);
    return;
  }
  try {
    std::rethrow_exception(what);
  } catch (const rpc_error& e) {
    // A main that fails because another worker is gone is not the one to name.
    act(run_.main_failed(members_.find(lost_worker(e.error())).value_or(rank()),
                         detail::what_of(e)));
  } catch (const std::exception& e) {
    act(run_.main_failed(rank(), in_words(e)));
  } catch (...) {
    act(run_.main_failed(rank(), "it threw something that is not a std::exception"));
  }
}

inline asio::awaitable<error>
worker::run(std::function<asio::awaitable<void>(weft::worker&)> main_) {
  error result = co_await serve_to_the_end(std::move(main_));
  deadlines().close();
  if (trim_) trim_->cancel();
  if (!result && thrown_) result = error(errc::worker_failed, *thrown_);
  if (!result && lost_posts_) {
    result = error(errc::peer_died, lost_posts_->second).with([&](error_detail& d) {
      d.peer = members_.members[lost_posts_->first].name;
    });
  }
  co_return result;
}

/// Of a run that is over.
inline void worker::forget_timers() noexcept {
  greeted_.reset();
  again_.reset();
  over_.reset();
  waits_.reset();
  counts_.reset();
  cuts_.clear();
}

/// What the run ended with, once its states are over.
inline asio::awaitable<error>
worker::serve_to_the_end(std::function<asio::awaitable<void>(weft::worker&)> main_) {
  env_.transports.accept(
      [this]() -> asio::io_context& {
        return env_.io.empty() ? front() : *env_.io[next_io_++ % env_.io.size()];
      },
      [this](connection_ptr c, asio::io_context& io) { accept(std::move(c), io); });
  start_heartbeats();
  apply_loss_policy();
  trim_buffers();
  if (rank() != 0) links_[0].open();
  start_join_deadline();
  auto body = [](worker& me,
                 std::function<asio::awaitable<void>(weft::worker&)> f) -> asio::awaitable<void> {
    std::exception_ptr threw;
    try {
      co_await f(me);
    } catch (...) {
      threw = std::current_exception();
    }
    or_die([&] {
      if (threw) return me.main_threw(std::move(threw));
      me.act(me.run_.main_returned());
      me.tell_of_waiting(me.options_.waiting);
    });
  };
  auto ended = event::wait(ended_);
  future<void> running =
      start_on(scoped(env_.context, make_intrusive<call_scope>()), body(*this, std::move(main_)));
  co_await std::move(ended);
  forget_timers();
  const time_point over = env_.time.now();
  if (!ends_by_) ends_by_ = later(over, options_.shutdown_deadline);
  error result;
  ending::cause cause = ending::cause::all_done;
  if (const auto& failure = run_.failure()) {
    const auto& [who, why] = *failure;
    cause = who == rank() ? ending::cause::own_failure : ending::cause::anothers_failure;
    result = error(who == rank() ? errc::worker_failed : errc::peer_died, why)
                 .with([&, w = who](error_detail& d) { d.peer = members_.members[w].name; });
  }
  ending end(rank() == 0 ? ending::place::rank_0 : ending::place::elsewhere, cause, over,
             *ends_by_);
  const auto moment = env_.time.make_timer(env_.context);
  while (end.current_state() != ending::state::over) {
    co_await enter_state(end, result, running);
    const auto so = [&](ending::condition c) { return is_met(c, running); };
    while (!end.step(so, env_.time.now())) co_await poll_interval(*moment);
  }
  // Whoever waited for a link is told, in front of this, that it is closed; where functions may
  // still run, also those that wait through others.
  co_await (result ? run_pending_handlers(env_.time.now()) : detail::next_turn(env_.context));
  co_return result;
}

/// Gives idle receive buffers back to the system.
inline void worker::trim_buffers() {
  if (!trim_) trim_ = env_.time.make_timer(env_.context);
  arm_or_die(*trim_, later(env_.time.now(), options_.buffer_cache_idle), [this] {
    buffers().release_idle(env_.time.now().time_since_epoch(), options_.buffer_cache_idle);
    trim_buffers();
  });
}

}  // namespace weft::engine
