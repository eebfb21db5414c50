// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link.hpp: reading, and where each frame goes.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/link/impl/link_bulk.hpp>
#include <weft/engine/link/impl/link_serve.hpp>
#include <weft/engine/link/impl/link_state.hpp>
#include <weft/engine/link/impl/link_unmade.hpp>
#include <weft/engine/shutdown/shutdown.hpp>
#include <weft/wire/detail/broken_protocol.hpp>
#include <weft/wire/detail/section_of.hpp>

#include <algorithm>

namespace weft::engine {

/// What a received buffer takes beside its bytes: a block of the pool, its owners, its place in a
/// frame. Counted, so that many small ones cost a peer what they cost here.
inline constexpr std::uint64_t buffer_cost = 512;

/// Received tensor memory, within its link's and worker's budget.
struct budgeted final : blob_owner {
  held_memory held;
  blob inner;  // dies first
};

inline const limits& link::bounds() const noexcept { return me_.settings().bounds; }

inline error link::over_budget(std::uint64_t size, const char* of_what) const {
  return error(errc::resource_exhausted,
               "no room for " + std::to_string(size) + " bytes " + of_what +
                   ": messages of this peer hold " + std::to_string(budget_->used()) + " of " +
                   std::to_string(budget_->limit()) +
                   " (options.bounds.link_tensor_bytes), those of all peers " +
                   std::to_string(me_.memory()->used()) + " of " +
                   std::to_string(me_.memory()->limit()) + " (options.bounds.worker_tensor_bytes)",
               call_progress::not_executed, origin::remote_runtime);
}

inline expected<blob> link::allocate(std::size_t size) {
  try {
    auto memory = make_intrusive<budgeted>();
    if (!memory->held.take(budget_, size + buffer_cost)) {
      return tl::unexpected(over_budget(size, "of tensors announced"));
    }
    memory->inner = me_.buffers().allocate(size);
    std::byte* const data = memory->inner.data();
    return blob(data, size, std::move(memory));
  } catch (const std::bad_alloc&) {
    return tl::unexpected(error(errc::resource_exhausted,
                                "no memory for " + std::to_string(size) + " bytes of tensors",
                                call_progress::not_executed, origin::remote_runtime));
  }
}

inline intrusive_ptr<given_memory> link::given_for(const frame& head) {
  return given_memory_for(head.header.kind, head);
}
/// For a frame of that kind, or for its tensors alone.
inline intrusive_ptr<given_memory> link::given_memory_for(frame_kind k, const frame& head) {
  const frame_header& h = head.header;
  if (is_answer(k)) return given_.find(h.call);
  if (k != frame_kind::request) return nullptr;
  const function_entry* const known = me_.functions().known(h.function, h.signature);
  return known && known->place ? known->place(head) : nullptr;
}

inline expected<void> link::frame_arrived(frame&& f) {
  partial_ = false;
  const std::uint64_t bytes = f.wire_size();
  arrived_.push_back({std::move(f), bytes, {}});
  return {};
}

/// Only the call or pass that it belongs to fails, where services can count on: what they were told
/// in its sections is told them, in its place among the other frames.
inline auto link::to_partial(frame&& rest, partial_frame what, std::uint64_t bytes, error why)
    -> expected<arrived_frame> {
  frame_header& h = rest.header;
  const bool call = h.kind == frame_kind::request || is_answer(h.kind);
  if (!call && (h.kind != frame_kind::autograd || what != partial_frame::head)) {
    return tl::unexpected(std::move(why));
  }
  if (what == partial_frame::header) {
    if (must_arrive(h)) return tl::unexpected(std::move(why));
    h.sections = h.tensors = 0;
    h.table_bytes = 0;
    h.payload_bytes = 0;
    h.flags &= static_cast<std::uint16_t>(~flag_padded);
    rest.head.resize(header_size);
    rest.seal();
  }
  return arrived_frame{std::move(rest), bytes, std::move(why)};
}

inline expected<void> link::frame_skipped(frame&& rest, partial_frame what, std::uint64_t bytes,
                                          error why) {
  partial_ = false;
  auto came = to_partial(std::move(rest), what, bytes, std::move(why));
  if (!came) return tl::unexpected(std::move(came).error());
  arrived_.push_back(*std::move(came));
  return {};
}

inline void link::progress() noexcept {
  partial_ = true;
  ++progress_;
  received_.fetch_add(1, std::memory_order_relaxed);
}

inline asio::awaitable<void> link::read_loop(connection_ptr connection) {
  const intrusive_ptr<link> self(this);
  error why;
  const bool shared = connection->shares_reading();
  try {
    read_some(nullptr);  // what came behind the handshake
    for (;;) {
      if (shared) {
        co_await connection->readable();
      } else {
        co_await connection->read(*this);
      }
      read_some(shared ? connection.get() : nullptr);
    }
  } catch (...) {  // of its transport, or of a service that refuses what came
    why = caught_or_die(me_, call_progress::maybe_executed);
  }
  // What came whole before the end still counts.
  try {
    read_some(nullptr);
  } catch (...) {  // of such a service, or what is refused
    const error also = caught_or_die(me_, call_progress::maybe_executed);
    if (why == errc::peer_died) why = also;
  }
  read_last_bulk();
  drop_bulk();
  {
    const std::lock_guard lock(reading_mutex_);
    arrived_.clear();
    shared_ = nullptr;
  }
  stall_.reset();
  mark_down(std::move(why));
  const std::lock_guard lock(mutex_);
  connection_ = nullptr;  // with what had come of a frame: its memory counts
}

/// On the connection's thread: handles what was read, and before it reads `from`, if it is given.
/// Throws what ends the link.
inline void link::read_some(any_connection* from) {
  request_queue::reader inbox(me_.requests());
  std::optional<helper::batch> batch;
  if (inbox.here()) batch.emplace(me_.helper());
  {
    const std::lock_guard lock(reading_mutex_);
    if (from && !dead_.load(std::memory_order_relaxed)) {
      static_cast<void>(from->read_at_once(*this));
    }
    if (auto ok = handle_arrived(); !ok) throw rpc_error(ok.error());
  }
  if (inbox.here()) me_.requests().drain();
}

inline bool link::help(error& why) noexcept {
  bool mine = false;
  {
    const std::unique_lock lock(reading_mutex_, std::try_to_lock);
    mine = lock.owns_lock();  // else a function may be under way there, for long
    // As much as one link may bring while others wait; what is left is told again.
    for (int reads = 0; mine && shared_ && reads < 16; ++reads) {
      try {
        const bool some = shared_->read_at_once(*this);
        if (auto ok = handle_arrived(); !ok) why = ok.error();
        if (!some && !why) break;
      } catch (...) {  // as in read_loop
        why = caught_or_die(me_, call_progress::maybe_executed);
        try {
          static_cast<void>(handle_arrived());  // what came whole before
        } catch (...) {                         // of a service that refuses it
          static_cast<void>(caught_or_die(me_, call_progress::maybe_executed));
        }
      }
      if (why) break;
    }
    if (mine) mine = help_bulk(why);
    if (why) {
      shared_ = nullptr;
      dead_.store(true, std::memory_order_relaxed);  // read_some reads no further either
    }
  }
  {
    std::unique_lock lock(mutex_);
    if (writing_ && pairing_.current_state() == state::up) write_on(lock);
  }
  write_bulk();
  return mine;
}

/// Frames of one read, as one batch: what they cause to be sent goes out together.
inline expected<void> link::handle_arrived() {
  if (arrived_.empty()) return {};
  std::vector<arrived_frame> batch;
  batch.swap(arrived_);
  write_batch sent(me_);  // of another thread than the worker's
  arrived_at_ = me_.time().now();
  if (auto honest = look_over(batch); !honest) return honest;
  std::size_t since_flush = 0;
  for (arrived_frame& a : batch) {
    if (dead_.load(std::memory_order_relaxed)) return {};
    if (auto ok = handle(std::move(a)); !ok) return ok;
    if (++since_flush == 32) {
      sent.flush();
      since_flush = 0;
    }
  }
  batch.clear();
  if (arrived_.empty()) arrived_.swap(batch);  // keep the allocation
  return {};
}

/// Whether it says anything about references. Its table need not be right.
[[nodiscard]] inline bool speaks_of_references(const frame& f) noexcept {
  if (f.header.kind == frame_kind::rref) return true;
  const std::uint64_t head = header_size + f.header.payload_bytes + f.header.table_bytes;
  if (f.head.size() != head) return false;
  return !detail::section_of(f, section_kind::rref).empty();
}

/// What is done once for all frames of a batch.
inline expected<void> link::look_over(const std::vector<arrived_frame>& batch) {
  std::uint64_t bytes = 0;
  std::size_t cancels = 0;
  bool credit = false;
  bool references = false;
  for (const arrived_frame& a : batch) {
    bytes += a.bytes;
    references = references || a.f.header.kind == frame_kind::rref || a.f.header.sections > 0;
    if (a.f.header.kind == frame_kind::cancel) ++cancels;
    if (gives_credit(a.f.header.kind)) credit = true;
  }
  me_.count_received(batch.size(), bytes);
  if (references) {
    // What they say is answered at once, by frames that no window bounds.
    const std::uint64_t unread = [&] {
      const std::lock_guard lock(mutex_);
      return outbox_.caused_bytes();
    }();
    if (unread > most_unread_references(me_.settings()) &&
        std::any_of(batch.begin(), batch.end(),
                    [](const arrived_frame& a) { return speaks_of_references(a.f); })) {
      return tl::unexpected(
          error(errc::resource_exhausted,
                "the peer sends reference messages and does not read the replies (" +
                    std::to_string(unread) + " bytes unread)",
                call_progress::maybe_executed, origin::transport));
    }
  }
  // Requests that came together with their own cancellation are not begun.
  cancelled_.clear();
  if (cancels > 0) {
    cancelled_.reserve(cancels);
    for (const arrived_frame& a : batch) {
      if (a.f.header.kind == frame_kind::cancel) cancelled_.push_back(a.f.header.call);
    }
    std::sort(cancelled_.begin(), cancelled_.end());
  }
  return credit ? take_credit(batch) : expected<void>();
}

/// What the frames of a batch free of the peer's window.
inline expected<void> link::take_credit(const std::vector<arrived_frame>& batch) {
  std::unique_lock lock(mutex_);
  for (const arrived_frame& a : batch) {
    const frame_header& h = a.f.header;
    if (!gives_credit(h.kind)) continue;
    const bool window = h.kind == frame_kind::window;
    if (!window_.credited(h.function) || (window && !bulk_window_.credited(h.call))) {
      return broken_protocol("the peer gives credit for more than this worker sent");
    }
  }
  room_changed();
  const bool more = !line_.empty() && !update_can_send() && window_.ask();
  const bool more_bulk = !bulk_line_.empty() && !update_bulk_room() && bulk_window_.ask();
  if (!more && !more_bulk) return {};
  lock.unlock();  // that was not enough
  send_small(frame_kind::window, 0);
  return {};
}

inline void link::watch_stalls() {
  if (!stall_) stall_ = me_.time().make_timer(io());
  struct look {
    bool begun;
    std::uint64_t progress;
    bool operator==(const look&) const = default;
    [[nodiscard]] bool stands(const look& now) const noexcept { return begun && now == *this; }
  };
  const auto calls = [this] { return look{partial_.load(), progress_.load()}; };
  const auto bulk = [this] { return look{bulk_in_.awaited.load(), bulk_in_.progress.load()}; };
  arm_or_die(*stall_, later(me_.time().now(), me_.settings().stall_limit),
             [this, calls, bulk, was = calls(), bulk_was = bulk()] {
               if (was.stands(calls()) || bulk_was.stands(bulk())) {
                 return mark_down(error(errc::protocol_error,
                                        "the peer began a frame and stopped sending",
                                        call_progress::maybe_executed, origin::transport));
               }
               watch_stalls();
             });
}

/// Of what goes to the worker's thread, which may be busy for long, no more is kept than a peer
/// that keeps to the protocol can send: what nobody asked for ends the link.
inline expected<void> link::admit(const frame& f) {
  const auto refused = [](errc code, std::string what) {
    return tl::unexpected(
        error(code, std::move(what), call_progress::maybe_executed, origin::transport));
  };
  if (is_answer(f.header.kind)) {
    // Only this thread and `take_back` lower it.
    if (answers_due_.load(std::memory_order_relaxed) <= 0) {
      return refused(errc::protocol_error, "the peer sent more answers than it got calls");
    }
    answers_due_.fetch_sub(1, std::memory_order_relaxed);
  } else if (f.header.kind == frame_kind::control) {
    const std::size_t world = me_.members().size();
    if (f.wire_size() > most_control_bytes(world)) {
      return refused(errc::protocol_error,
                     "a control frame of " + std::to_string(f.wire_size()) + " bytes is too long");
    }
    if (controls_.fetch_add(1, std::memory_order_relaxed) >= most_controls(world)) {
      return refused(
          errc::resource_exhausted,
          "too many control frames wait to be handled: more than a run has for this worker");
    }
  }
  return {};
}

/// Admitted, and whole.
inline expected<void> link::to_worker(arrived_frame&& came) {
  me_.requests().push(intrusive_ptr<request_source>(this), std::move(came.f),
                      std::move(came.allocation_error));
  return {};
}

inline expected<void> link::service_frame(arrived_frame&& came) {
  incoming_message m(std::move(came.f), bounds(), std::move(came.allocation_error));
  if (auto ok = m.check(); !ok) return ok;
  expected<void> result;
  bool owned = false;
  me_.each_service([&](service& s) {
    if (!s.owns(m.header().kind)) return;
    owned = true;
    result = s.frame(*this, m);
  });
  if (owned) return result;
  return broken_protocol("a frame of a service that this worker does not have");
}

inline expected<void> link::handle(arrived_frame&& came) {
  frame& f = came.f;
  if (f.on_bulk() && !may_have_bulk(f.header.kind)) {
    return broken_protocol("large tensors of a frame that has none");
  }
  if (is_of_other_services(f.header.kind)) return service_frame(std::move(came));
  switch (f.header.kind) {
  case frame_kind::request:
    return handle_request(std::move(came));
  case frame_kind::window:
    if (f.header.function != 0 || f.header.call != 0) return {};
    {
      const std::lock_guard lock(serving_mutex_);
      granted_.starved();
      bulk_granted_.starved();
    }
    give_credit();
    return {};
  case frame_kind::cancel: {
    // The worker's thread may be busy for long: of what piles up before it nothing is in vain.
    const std::lock_guard lock(serving_mutex_);
    if (!served_.first_cancel(f.header.call)) return {};
  }
    [[fallthrough]];
  case frame_kind::reply:
  case frame_kind::failure:
  case frame_kind::control:
    if (auto ok = admit(f); !ok) return ok;
    if (f.on_bulk()) {
      const frame_header of = f.header;
      if (!came.allocation_error) return await_bulk({of, std::move(came)});
      if (auto ok = await_bulk({of, {}}); !ok) return ok;
    }
    return to_worker(std::move(came));
  case frame_kind::ping:
    peer_busy_.store((f.header.call & 1) != 0, std::memory_order_relaxed);
    return {};
  case frame_kind::autograd:
    if (f.on_bulk() || !bulk_in_.held.empty()) return hold(std::move(came));
    [[fallthrough]];
  case frame_kind::rref:
    return service_frame(std::move(came));
  case frame_kind::bulk:
    return broken_protocol("large tensors on the connection for calls");
  case frame_kind::hello:
  case frame_kind::welcome:
  case frame_kind::refuse:
  case frame_kind::challenge:
  case frame_kind::proof:
  case frame_kind::ready:
    break;
  }
  return broken_protocol("a handshake frame after the handshake");
}

inline void link::handle_here(frame&& f, error allocation_error) {
  if (lost_) return;
  incoming_message m(std::move(f), bounds(), std::move(allocation_error));
  const frame_kind kind = m.header().kind;
  if (auto ok = m.check(); !ok) {
    mark_down(ok.error());
    return;
  }
  if (kind == frame_kind::cancel) {
    cancel_served(m.header().call);
  } else if (kind == frame_kind::control) {
    controls_.fetch_sub(1, std::memory_order_relaxed);
    me_.control(*this, m);
  } else {
    reply_arrived(std::move(m));
  }
}

inline void link::reply_arrived(incoming_message&& m) {
  if (auto arrived = tell_readers(m); !arrived) {
    mark_down(arrived.error());
    return;
  }
  const std::uint64_t call = m.header().call;
  const bool failed = m.header().kind == frame_kind::failure;
  // What nobody here can read, or has memory for, does not say how far the function got.
  const call_progress ran = failed ? call_progress::maybe_executed : call_progress::executed;
  const auto as_far = [ran](const error& e) {
    return e.with([ran](error_detail& d) {
      d.ran = ran;
      d.from = origin::local;
    });
  };
  call_result result;
  try {
    if (m.allocation_error()) {
      result.failure = as_far(m.allocation_error());
    } else if (failed) {
      reader r = m.payload();
      result.failure = codec<error>::decode(r);
      r.finish();
      if (!result.failure) r.fail("a failure that says success");
      if (result.failure.ran() == call_progress::not_sent) {  // it was: the peer cannot know better
        result.failure =
            result.failure.with([](error_detail& d) { d.ran = call_progress::maybe_executed; });
      }
    } else {
      result.reply = make_intrusive<held_reply>(std::move(m));
    }
  } catch (const std::bad_alloc&) {
    result = {nullptr, error(errc::resource_exhausted, "no memory for the reply", ran)};
  } catch (const rpc_error& e) {
    result.failure = as_far(e.error());
  }
  resume_users(me_.context(), [&] {
    if (pending_.complete(call, std::move(result))) return;
    me_.counts.late_replies.fetch_add(1, std::memory_order_relaxed);
    if (given_up_ > 0) {
      --given_up_;
    } else {  // to no call at all: the others are still to be answered
      answers_due_.fetch_add(1, std::memory_order_relaxed);
    }
  });
}

}  // namespace weft::engine
