// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link.hpp: connections, loss, signs of life.
#pragma once

#include <weft/engine/link/impl/link_send.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace weft::engine {

inline link::state link::current_state() const {
  const std::lock_guard lock(mutex_);
  return pairing_.current_state();
}
inline std::string link::transport() const {
  const std::lock_guard lock(mutex_);
  return connection_ ? std::string(connection_->transport()) : std::string();
}
inline error link::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}
inline std::size_t link::waiting() const {
  const std::lock_guard lock(mutex_);
  return outbox_.frames() + bulk_out_.waiting() +
         (pairing_.current_state() == state::up ? connection_->unsent_frames() : 0);
}
inline asio::io_context& link::io() const {
  const std::lock_guard lock(mutex_);
  return *io_;
}

inline std::uint64_t link::left_to_write() const noexcept {
  if (rank_ == me_.rank()) return 0;  // what it writes itself only its own thread reads
  const std::lock_guard lock(mutex_);
  if (pairing_.current_state() != state::up) return 0;
  return (writing_ ? outbox_.waiting_bytes() : 0) + bulk_out_.waiting_bytes();
}

inline link_counts link::count() {
  link_counts out;
  out.calls = pending_.waiting();
  out.answers_due = answers_due_.load(std::memory_order_relaxed);
  out.budget_used = budget_->used();
  out.for_objects = for_objects_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  out.window_used = window_.used() + bulk_window_.used();
  const std::lock_guard serving(serving_mutex_);
  out.served = served_.size();
  out.throttled = throttled_.size();
  out.window_held = granted_.held() + bulk_granted_.held();
  out.window_owed = granted_.owed() + bulk_granted_.owed();
  out.replies_unwritten = granted_.unwritten() + bulk_granted_.unwritten();
  return out;
}

inline std::multiset<std::string> link::serves() {
  std::multiset<std::string> out;
  const std::lock_guard serving(serving_mutex_);
  served_.each([&](const served_request& call) {
    if (call.function) out.emplace(call.function->name);
  });
  return out;
}

inline bool link::broke() const {
  const std::lock_guard lock(mutex_);
  return pairing_.current_state() == state::down && (was_up_ || requests.posted.load() > 0);
}

inline peer_counts link::carried_posts() const {
  const std::lock_guard lock(mutex_);
  const std::uint64_t ended = requests.ended.load();
  return {rank_, requests.posted.load(), ended - std::min(ended, requests.cut.load()), was_up_};
}

// ── connecting ──

inline void link::open() {
  {
    const std::lock_guard lock(mutex_);
    pairing_.keep_up();
    if (!pairing_.want()) return;
  }
  begin_connecting();
}

inline void link::begin_connecting() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!pairing_.open()) return;
  }
  or_die([&] { me_.connect(*this); });
}

inline auto link::reserve() -> welcome {
  const std::lock_guard lock(mutex_);
  return pairing_.reserve();
}
inline void link::unreserve() {
  {
    const std::lock_guard lock(mutex_);
    if (!pairing_.unreserve(outbox_.frames() > 0)) return;
  }
  begin_connecting();
}

inline void link::cannot_connect(error why) {
  const bool never = why == errc::version_mismatch || why == errc::unauthenticated ||
                     why == errc::wrong_peer || why == errc::no_common_transport ||
                     why == errc::invalid_argument || why == errc::protocol_error;
  unsigned tries = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!pairing_.failed()) return;
    if (!never) {
      reason_ = std::move(why);
      if (!pairing_.tries_again(outbox_.frames() > 0)) return;
      tries = ++tries_;
    }
  }
  if (never) return mark_down(std::move(why));
  // Exponential back-off, not the same for all who try.
  const auto step = std::chrono::milliseconds(20 + 3 * ((me_.rank() + rank_) % 4));
  const duration pause =
      std::min<duration>(step * (1u << std::min(tries, 6u)), std::chrono::seconds(1));
  post_or_die(me_.front(), [self = intrusive_ptr<link>(this), pause] {
    if (!self->retry_) self->retry_ = self->me_.time().make_timer(self->me_.front());
    self->retry_->arm(self->me_.time().now() + pause, [l = self.get()] { l->begin_connecting(); });
  });
}

/// Goes to the worker's thread, if links live there. False: its transport could not move it.
[[nodiscard]] inline bool move_home(link_host& me, any_connection& c, asio::io_context*& at) {
  if (me.on_context(*at) || !me.links_on_context()) return true;
  try {
    if (c.move_to(me.context())) at = &me.context();
    return true;
  } catch (...) {  // which the caller hears, and closes it
    return false;
  }
}

/// This worker itself has no need of a helper to call itself.
inline bool link::is_helped(const any_connection& c, const asio::io_context& at) const noexcept {
  return c.shares_reading() && me_.on_context(at) && me_.helper().reads_links() &&
         rank_ != me_.rank();
}

inline void link::install(connection_ptr connection, asio::io_context& at, early first) {
  asio::io_context* target_context = &at;
  if (!move_home(me_, *connection, target_context)) {
    connection->close();
    {
      const std::lock_guard lock(mutex_);
      pairing_.dropped();
    }
    return begin_connecting();
  }
  const bool helped = is_helped(*connection, *target_context);
  {
    std::unique_lock lock(mutex_);
    if (!pairing_.install()) {
      connection->close();
      return;
    }
    reason_ = {};
    was_up_ = true;
    io_ = target_context;
    helped_ = helped;
    connection_ = connection;
    if (first.takes_bulk && connection->needs_life()) bulk_out_.allow();
    received_.fetch_add(1, std::memory_order_relaxed);
    write_locked(lock);
  }
  each_service([&](service& s) { s.up(*this); });
  {
    const std::lock_guard lock(reading_mutex_);
    arrived_ = std::move(first.frames);
    partial_ = first.another_begun;
    if (helped) shared_ = connection;
  }
  try {
    if (helped) me_.announce_arrivals(*connection);
  } catch (...) {  // no memory for it in the kernel
    mark_down(caught_or_die(me_, call_progress::not_sent));
  }
  post_or_die(*target_context, [self = intrusive_ptr<link>(this), c = std::move(connection)] {
    self->begin_reading(c);
  });
}

inline void link::begin_reading(connection_ptr connection) {
  watch_stalls();
  spawn_or_die(io(), read_loop(std::move(connection)), intrusive_ptr<link>(this));
}

// ── loss ──

inline void link::mark_down(error reason) noexcept {
  frame_queue abandoned;
  bulk_out::turn bulk;
  asio::io_context* target_context = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!pairing_.lose()) return;
    stop_throttling();
    dead_.store(true, std::memory_order_relaxed);
    reason_ = reason.with([&](error_detail& d) {
      d.ran = call_progress::not_sent;
      d.peer = name();
      d.incarnation = me_.members().members[rank_].incarnation.low;
    });
    if (connection_) connection_->close();
    if (bulk_connection_) bulk_connection_->close();
    bulk = bulk_out_.close();
    unsent_from_ = outbox_.first_unbegun();
    abandoned = outbox_.abandon();
    target_context = io_;
  }
  // Behind what is being read, by the helper too, then behind what was handed over: the loss comes
  // last.
  post_or_die(*target_context, [self = intrusive_ptr<link>(this)] {
    self->drop_bulk();
    const auto later = [self] {
      post_or_die(self->me_.context(),
                  [self] { post_or_die(self->me_.context(), [self] { self->finish_loss(); }); });
    };
    self->me_.helper().reads_links() ? post_or_die(self->me_.front(), later) : later();
  });
}

/// Of a link that is down: what was sent may have run.
inline void link::fail_pending(const error& why) noexcept {
  const error maybe = why.with([](error_detail& d) { d.ran = call_progress::maybe_executed; });
  pending_.fail_all([&](std::uint64_t number) { return number >= unsent_from_ ? why : maybe; });
}

inline void link::finish_loss() {
  if (std::exchange(lost_, true)) return;
  const error why = me_.loss_reason(rank_, reason());
  fail_pending(why);
  cancel_all_served();
  line_.wake_all();
  bulk_line_.wake_all();
  if (!me_.only_leaves(rank_)) me_.each_service([&](service& s) { s.down(*this, why); });
  me_.lost(*this, why);
}

inline void link::fail_calls(const error& reason) {
  calls_over_ = unsent(reason);
  const error maybe = reason.with([](error_detail& d) { d.ran = call_progress::maybe_executed; });
  pending_.fail_all([&](std::uint64_t number) {
    if (take_back(number)) return *calls_over_;
    ++given_up_;
    return maybe;
  });
  line_.wake_all();
  bulk_line_.wake_all();
}

inline void link::close() noexcept {
  frame_queue abandoned;
  bulk_out::turn bulk;
  {
    const std::lock_guard lock(mutex_);
    const error over(errc::shutting_down, "the run is over");
    if (!pairing_.lose()) {
      if (me_.ended_well()) reason_ = over;  // whoever has gone, calls are too late for that
      return;
    }
    stop_throttling();
    dead_.store(true, std::memory_order_relaxed);
    reason_ = over;
    if (connection_) connection_->close();
    if (bulk_connection_) bulk_connection_->close();
    bulk = bulk_out_.close();
    unsent_from_ = outbox_.first_unbegun();
    abandoned = outbox_.abandon();
    post_or_die(*io_, [self = intrusive_ptr<link>(this)] { self->drop_bulk(); });
  }
  fail_pending(reason());
  line_.wake_all();
  bulk_line_.wake_all();
}

// ── life ──

inline void link::send_heartbeat(bool reading) noexcept {
  {
    std::unique_lock lock(mutex_);
    if (pairing_.current_state() != state::up || !connection_->needs_life()) return;
    if (!life_.quiet(written_.load(std::memory_order_relaxed))) return;
    // What waits to be written is as good a sign, if the peer takes it.
    if (!outbox_.empty()) return write_locked(lock);
  }
  send_small(frame_kind::ping, reading ? 0 : 1);
}

inline void link::check_peer(const asio::io_context& here, duration interval) noexcept {
  const options& o = me_.settings();
  using verdict = signs_of_life::verdict;
  verdict peer = verdict::alive;
  const auto judged_here = [&] {  // where somebody reads it though the worker computes
    return pairing_.current_state() == state::up && &here == (helped_ ? &me_.front() : io_) &&
           connection_->needs_life();
  };
  {
    const std::lock_guard lock(mutex_);
    if (!judged_here()) return;
  }
  // A function that came on it may be under way on the thread that reads, with the rest unread.
  if (const std::unique_lock reading(reading_mutex_, std::try_to_lock); !reading) {
    received_.fetch_add(1, std::memory_order_relaxed);
  }
  {
    const std::lock_guard lock(mutex_);
    if (!judged_here()) return;
    peer = life_.judge({received_.load(std::memory_order_relaxed),
                        written_.load(std::memory_order_relaxed), writing_,
                        peer_busy_.load(std::memory_order_relaxed)},
                       interval, {o.lost_after, o.stall_limit});
  }
  if (peer == verdict::alive) return;
  mark_down(error(errc::peer_died,
                  peer == verdict::silent
                      ? "nothing came from it for too long"
                      : "it has read nothing for too long (options.stall_limit)",
                  call_progress::maybe_executed, origin::transport));
}

}  // namespace weft::engine
