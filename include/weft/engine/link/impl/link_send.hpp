// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link.hpp: sending.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/helper/write_batch.hpp>
#include <weft/engine/link/link.hpp>
#include <weft/engine/link/no_room.hpp>
#include <weft/rpc/detail/caught.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/wire/error_codec.hpp>

#include <asio/deferred.hpp>
#include <asio/detached.hpp>
#include <asio/post.hpp>

#include <algorithm>
#include <utility>

namespace weft::engine {

inline link::link(link_host& me, std::uint32_t rank, asio::io_context& io)
    : request_source(me, rank),
      pairing_(me.rank(), rank),
      io_(&io),
      window_(me.members().members[rank].window),
      bulk_window_(me.members().members[rank].window),
      granted_(me.settings().window_bytes, me.settings().window_bytes),
      bulk_granted_(me.settings().window_bytes, me.settings().window_bytes,
                    receive_window::replies::but_the_largest),
      served_(me.salt()),
      budget_(make_intrusive<memory_budget>(me.settings().bounds.link_tensor_bytes, me.memory())),
      pending_(me.context(), me.deadlines(), [this](std::uint64_t call, std::uint64_t number) {
        return abandon_call(call, number);
      }) {}

template <class Tell>
void link::each_service(Tell&& tell) noexcept {
  or_die([&] { me_.each_service(tell); });
}

/// Who has something to say about a message that is sent here and now.
inline std::uint32_t speakers(message& m) noexcept {
  std::uint32_t out = m.record().service_bits();
  if (current_scope && current_scope->autograd) out |= service::bit_of(service_id::autograd);
  return out;
}

inline expected<std::uint64_t> link::queue(message&& m, const frame_header& header) noexcept {
  // NOLINTBEGIN(bugprone-use-after-move): finish takes the bytes and leaves the record
  error why;
  std::uint64_t crowded_out = 0;
  const bool request = header.kind == frame_kind::request;
  const bool answered = request && (header.flags & flag_no_reply) == 0;
  if (request) requests.sent.fetch_add(1);
  if (answered) answers_due_.fetch_add(1, std::memory_order_relaxed);  // before its answer can come
  const std::uint32_t asked = speakers(m);
  const auto if_asked = [asked](auto tell) {
    return [asked, tell](service& s) {
      if ((s.bit() & asked) != 0) tell(s);
    };
  };
  try {
    if (asked != 0) {
      or_die([&] { me_.each_service(if_asked([&](service& s) { s.attach(*this, header, m); })); });
    }
    frame f = std::move(m).finish(header);  // as large as what was encoded
    const auto number = or_die([&] { return push(std::move(f)); });
    if (number && !is_crowded_out(*number)) {
      if (asked != 0) each_service(if_asked([&](service& s) { s.sent(*this, m.record()); }));
      return *number;
    }
    crowded_out = number.value_or(0);
    if (crowded_out == 0) why = reason();
  } catch (...) {
    why = unsent(engine::caught(me_));
  }
  if (request) requests.sent.fetch_sub(1);
  if (answered) answers_due_.fetch_sub(1, std::memory_order_relaxed);
  if (asked != 0) each_service(if_asked([&](service& s) { s.dropped(*this, m.record()); }));
  if (crowded_out != 0) return crowded_out;
  return tl::unexpected(std::move(why));
  // NOLINTEND(bugprone-use-after-move)
}

/// The frame's number, or that there is no room; nothing if the link is down.
inline std::optional<std::uint64_t> link::push(frame&& f) {
  bool connect = false;
  bool connect_bulk = false;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (pairing_.current_state() == state::down) return std::nullopt;
    const frame_kind kind = f.header.kind;
    const bool large = goes_as_bulk(f, connect_bulk);
    if (kind == frame_kind::request) {
      const bool turn = !large || bulk_line_.empty() || bulk_turn_.exchange(false);
      if (large && (!turn || !update_bulk_room())) return no_bulk_room;
      if (!window_.sent(request_cost(large ? f.head.size() : f.wire_size()))) {
        update_can_send();
        return no_room;
      }
    }
    std::optional<frame> bulk;
    if (large) {
      bulk = split_bulk(f);
      if (kind == frame_kind::request) static_cast<void>(bulk_window_.sent(bulk->wire_size()));
    }
    if (is_answer(kind)) {
      const std::lock_guard serving(serving_mutex_);
      granted_.reply_queued(f.wire_size());
      if (bulk) bulk_granted_.reply_queued(bulk->wire_size());
      f.header.function = granted_.take_all();
      f.seal();
      no_longer_served(f.header.call);
    }
    if (kind == frame_kind::request) its_turn_.store(false, std::memory_order_relaxed);
    const bool post = kind == frame_kind::request && (f.header.flags & flag_no_reply) != 0;
    if (post) requests.posted.fetch_add(1);
    if (bulk) bulk_out_.push(outbox_.next_number(), *std::move(bulk));
    number = outbox_.push(std::move(f));
    update_can_send();
    if (large) {
      has_bulk_.store(true, std::memory_order_relaxed);
      static_cast<void>(update_bulk_room());
    }
    connect = pairing_.want();
  }
  if (connect) begin_connecting();
  if (connect_bulk) or_die([this] { me_.connect_bulk(*this); });
  return number;
}

inline bool link::append(frame&& f) { return push(std::move(f)).has_value(); }

inline void link::flush() noexcept {
  if (me_.on_thread()) return or_die([this] { me_.helper().add(*this); });
  if (write_batch* const batch = write_batch::of(me_)) return or_die([&] { batch->add(*this); });
  write_now();
}

inline void link::write_now() noexcept {
  {
    std::unique_lock lock(mutex_);
    write_locked(lock);
  }
  if (has_bulk_.load(std::memory_order_relaxed)) write_bulk();
}

inline void link::flush_late() noexcept {
  if (!or_die([&] { return me_.helper().put_off(*this); })) flush();
}

/// Writes what goes without waiting; leaves the rest to write_rest. Unlocks.
inline void link::write_locked(std::unique_lock<std::mutex>& lock) noexcept {
  if (pairing_.current_state() != state::up || writing_ || outbox_.empty()) {
    if (writing_ && !outbox_.empty()) me_.helper().left_over();
    lock.unlock();
    return;
  }
  if (write_on(lock) != write_status::blocked) return;
  me_.helper().left_over();
  lock.lock();
  connection_ptr connection = connection_;  // the only one of a link that is up
  asio::io_context& io = *io_;
  lock.unlock();
  or_die([&] { spawn_or_die(io, write_rest(std::move(connection)), intrusive_ptr<link>(this)); });
}

/// Of a link that is up: one more write; what is left is under way then. Unlocks.
inline write_status link::write_on(std::unique_lock<std::mutex>& lock) noexcept {
  const std::uint64_t before = outbox_.waiting_bytes();
  const write_status result = connection_->try_write(outbox_);
  std::vector<frame> finished;
  finished.swap(outbox_.finished());
  if (result == write_status::blocked) writing_ = true;
  me_.count_sent(finished.size(), before - outbox_.waiting_bytes());
  wrote(before);
  lock.unlock();
  // `finished` dies here, without the lock; its storage goes back for the next batch.
  finished.clear();
  lock.lock();
  if (outbox_.finished().capacity() == 0) outbox_.finished().swap(finished);
  lock.unlock();
  return result;
}

/// Under the lock, after a write.
inline void link::wrote(std::uint64_t before) noexcept {
  if (outbox_.waiting_bytes() == before) return;
  written_.fetch_add(1, std::memory_order_relaxed);
  room_changed();
  replies_written(granted_, outbox_.replies_gone());
}

inline void link::replies_written(receive_window& counts, std::uint64_t bytes) noexcept {
  if (bytes == 0) return;
  bool release = false;
  {
    const std::lock_guard serving(serving_mutex_);
    counts.reply_written(bytes);
    release = !throttled_.empty() && may_begin();
  }
  if (release) release_soon();
}

inline asio::awaitable<void> link::write_rest(connection_ptr connection) {
  const intrusive_ptr<link> self(this);
  try {
    for (;;) {
      co_await connection->writable();
      std::unique_lock lock(mutex_);
      if (pairing_.current_state() != state::up || connection_ != connection) co_return;
      writing_ = false;
      if (write_on(lock) != write_status::blocked) co_return;
    }
  } catch (const rpc_error&) {
    co_return;     // the connection ended; read_loop reports why
  } catch (...) {  // of a user's transport
    mark_down(caught_or_die(me_, call_progress::maybe_executed));
  }
}

// ── room ──

/// Under the lock, after what may have changed it: whether there is room for a request.
inline bool link::update_can_send() noexcept {
  const options& o = me_.settings();
  const bool room = outbox_.frames() < o.outbox_frames &&
                    outbox_.waiting_bytes() < o.outbox_bytes && !window_.full();
  can_send_.store(room, std::memory_order_relaxed);
  return room;
}

/// The same for large tensors.
inline bool link::update_bulk_room() noexcept {
  const bool room = bulk_out_.waiting_bytes() < me_.settings().outbox_bytes && !bulk_window_.full();
  bulk_room_.store(room, std::memory_order_relaxed);
  return room;
}

/// Under the lock, after what may have made some.
inline void link::room_changed() noexcept {
  const bool room = update_can_send() && !line_.empty();
  if ((update_bulk_room() && !bulk_line_.empty()) || room) wake_line();
}

inline bool link::can_send() noexcept {
  return can_send_.load(std::memory_order_relaxed) || look_for_room(message_size::any);
}
inline bool link::can_send_bulk() noexcept {
  return bulk_room_.load(std::memory_order_relaxed) || look_for_room(message_size::large);
}

/// Asks the peer for some, if there is none.
inline bool link::look_for_room(message_size what) noexcept {
  const bool large = what == message_size::large;
  bool ask = false;
  {
    const std::lock_guard lock(mutex_);
    // Of a lost link `queue` tells why.
    if (pairing_.current_state() == state::down) return true;
    if (large ? update_bulk_room() : update_can_send()) return true;
    ask = pairing_.current_state() == state::up && (large ? bulk_window_ : window_).ask();
  }
  if (ask) {
    send_small(frame_kind::window, 0);
    write_now();  // its answer is what a caller waits for
  }
  return false;
}

inline void link::wake_line() noexcept {
  if (waking_.exchange(true)) return;
  post_or_die(me_.context(), [self = intrusive_ptr<link>(this)] {
    self->waking_.store(false);
    self->line_.wake_first();
    self->bulk_line_.wake_first();
  });
}

inline asio::awaitable<expected<void>>
link::wait_in_line(time_point deadline, waiting_line::ticket& ticket, message_size what) {
  const intrusive_ptr<link> self(this);
  const bool large = what == message_size::large;
  waiting_line::place mine(large ? bulk_line_ : line_, me_.deadlines(), deadline, ticket);
  for (;;) {
    if (current_state() == state::down) co_return tl::unexpected(reason());
    if (calls_over_) co_return tl::unexpected(*calls_over_);
    if (mine.is_first() && (large ? can_send_bulk() : can_send())) co_return expected<void>();
    if (mine.late()) {
      co_return tl::unexpected(waited_in_vain(*this));
    }
    if (!co_await mine.changed()) {
      co_return tl::unexpected(
          error(errc::cancelled, "the caller gave up waiting for room", call_progress::not_sent));
    }
  }
}

// ── small frames ──

/// A frame that is its header.
inline void link::send_small(frame_kind kind, std::uint64_t call) noexcept {
  or_die([&] {
    frame_header header;
    header.kind = kind;
    header.call = call;
    if (append(message(me_.settings().bounds).finish(header))) flush();
  });
}

inline void link::give_credit() noexcept {
  or_die([&] {
    frame_header header;
    header.kind = frame_kind::window;
    frame f = message(me_.settings().bounds).finish(header);
    {
      const std::lock_guard lock(mutex_);
      if (pairing_.current_state() == state::down) return;
      {
        const std::lock_guard serving(serving_mutex_);
        f.header.function = granted_.take_due();
        f.header.call = bulk_granted_.take_due();
      }
      if (f.header.function == 0 && f.header.call == 0) return;  // a reply took it
      f.seal();
      outbox_.push(std::move(f));
    }
    flush();
  });
}

/// A call ends without its reply: whether its frame was not begun, and never will be. Frames with
/// references or gradients were counted by their services, and travel.
inline bool link::take_back(std::uint64_t number) noexcept {
  frame back;
  frame tensors;
  const std::lock_guard lock(mutex_);
  if (pairing_.current_state() == state::down) return number >= unsent_from_;
  back = outbox_.withdraw(number, [&](const frame& f) {
    return !must_arrive(f.header) && (!f.on_bulk() || bulk_out_.can_withdraw(number));
  });
  if (back.head.size() == 0) return false;
  if (back.on_bulk()) {
    tensors = bulk_out_.withdraw(number);
    static_cast<void>(bulk_window_.credited(tensors.wire_size()));
  }
  static_cast<void>(window_.credited(request_cost(back.wire_size())));
  requests.sent.fetch_sub(1);
  answers_due_.fetch_sub(1, std::memory_order_relaxed);
  room_changed();
  return true;
}

/// What is not taken back is cancelled there.
inline call_progress link::abandon_call(std::uint64_t call, std::uint64_t number) noexcept {
  if (take_back(number)) return call_progress::not_sent;
  ++given_up_;
  if (current_state() != state::down) send_small(frame_kind::cancel, call);
  return call_progress::maybe_executed;
}

}  // namespace weft::engine
