// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link.hpp: large tensors, on connections of their own, one for each direction.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/link/impl/link_serve.hpp>
#include <weft/engine/link/impl/link_state.hpp>
#include <weft/wire/detail/broken_protocol.hpp>
#include <weft/wire/detail/drop_tensors.hpp>

#include <chrono>
#include <utility>
#include <vector>

namespace weft::engine {

[[nodiscard]] inline bool may_have_bulk(frame_kind k) noexcept {
  return k == frame_kind::request || is_answer(k) || k == frame_kind::autograd;
}

[[nodiscard]] inline bool is_bulk(const frame& f) noexcept {
  return f.header.kind == frame_kind::bulk && !f.on_bulk();
}
[[nodiscard]] inline expected<void> not_bulk() {
  return detail::broken_protocol("a frame of calls on the connection for large tensors");
}

/// Most bytes of frames about references that a peer may leave unread while it causes more of them,
/// and of frames of gradients that wait for large tensors: as many as may wait of requests.
[[nodiscard]] inline std::uint64_t most_unread_references(const options& o) noexcept {
  return std::max<std::uint64_t>(o.outbox_bytes, 16u << 20);
}

// ── sending ──

/// Under the lock. `connect`: a connection is to be opened, for later ones.
inline bool link::goes_as_bulk(const frame& f, bool& connect) noexcept {
  if (f.blobs.empty() || !may_have_bulk(f.header.kind)) return false;
  if (f.wire_size() - f.head.size() < me_.settings().bulk_bytes) return false;
  if (pairing_.current_state() != state::up) return false;
  if (bulk_out_.is_open()) return true;
  connect = bulk_out_.wants_connection(me_.time().now());
  return false;
}

/// Writes what goes without waiting, a turn at most; the rest is left to write_bulk_rest.
inline void link::write_bulk() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (pairing_.current_state() != state::up || !bulk_out_.begin_turn()) return;
  }
  const write_status result = bulk_out_.write();
  bulk_out::turn done;  // dies without the lock
  connection_ptr to_wait_for;
  {
    const std::lock_guard lock(mutex_);
    done = bulk_out_.end_turn(result);
    has_bulk_.store(bulk_out_.waiting_bytes() > 0, std::memory_order_relaxed);
    me_.count_sent(0, done.bytes);
    if (done.bytes > 0) {
      written_.fetch_add(1, std::memory_order_relaxed);
      room_changed();
    }
    replies_written(bulk_granted_, done.replies);
    if (result != write_status::closed && bulk_out_.begin_wait()) {
      to_wait_for = bulk_out_.connection();
    }
  }
  if (result == write_status::closed) {
    return bulk_broke(error(errc::peer_died, "the peer closed the connection for large tensors",
                            call_progress::maybe_executed, origin::transport));
  }
  if (!to_wait_for) return;
  me_.helper().left_over();
  or_die([&] {
    spawn_or_die(io(), write_bulk_rest(std::move(to_wait_for)), intrusive_ptr<link>(this));
  });
}

inline asio::awaitable<void> link::write_bulk_rest(connection_ptr connection) {
  const intrusive_ptr<link> self(this);
  try {
    for (;;) {
      co_await connection->writable();
      {
        const std::lock_guard lock(mutex_);
        bulk_out_.may_write();
      }
      write_bulk();
      const std::lock_guard lock(mutex_);
      if (!bulk_out_.goes_on()) co_return;
    }
  } catch (...) {
    bulk_broke(caught_or_die(me_, call_progress::maybe_executed));
  }
}

// ── connections ──

inline void link::bulk_opened(connection_ptr connection, asio::io_context& at) {
  asio::io_context* where = &at;
  if (connection && !move_home(me_, *connection, where)) {
    connection->close();
    connection = nullptr;
  }
  const std::lock_guard lock(mutex_);
  if (!connection) return bulk_out_.failed(me_.time().now());
  if (!bulk_out_.opened(connection)) connection->close();
}

inline bool link::sends_bulk() const {
  const std::lock_guard lock(mutex_);
  return bulk_out_.is_open();
}

inline auto link::reserve_bulk() -> welcome {
  const std::lock_guard lock(mutex_);
  if (pairing_.current_state() == state::down) return welcome::down;
  return std::exchange(bulk_reserved_, true) ? welcome::another_stays : welcome::yes;
}
inline void link::unreserve_bulk() {
  const std::lock_guard lock(mutex_);
  bulk_reserved_ = false;
}

inline void link::install_bulk(connection_ptr connection, asio::io_context& at, early first) {
  asio::io_context* where = &at;
  if (!move_home(me_, *connection, where)) {
    connection->close();
    return unreserve_bulk();
  }
  const bool helped = is_helped(*connection, *where);
  {
    const std::lock_guard lock(mutex_);
    if (pairing_.current_state() == state::down) return connection->close();
    bulk_connection_ = connection;
  }
  for (const arrived_frame& a : first.frames) {
    if (!is_bulk(a.f)) return mark_down(not_bulk().error());
  }
  {
    const std::lock_guard lock(bulk_in_.reading);
    for (arrived_frame& a : first.frames) {
      bulk_in_.early.push_back({std::move(a.f), a.bytes, std::move(a.allocation_error)});
    }
    if (helped) bulk_in_.shared = connection;
  }
  try {
    if (helped) me_.announce_arrivals(*connection);
  } catch (...) {  // no memory for it in the kernel
    mark_down(caught_or_die(me_, call_progress::not_sent));
  }
  post_or_die(*where,
              [self = intrusive_ptr<link>(this), c = std::move(connection), where]() mutable {
                spawn_or_die(*where, self->read_bulk_loop(std::move(c)), self);
              });
}

/// The peer has closed one, as it does when it ends: what else it said then is heard first.
inline void link::bulk_broke(error why) {
  if (why != errc::peer_died) return mark_down(std::move(why));
  post_or_die(me_.front(), [self = intrusive_ptr<link>(this), why = std::move(why)] {
    if (self->bulk_end_) return;
    self->bulk_end_ = self->me_.time().make_timer(self->me_.front());
    arm_or_die(*self->bulk_end_, self->me_.time().now() + std::chrono::seconds(1),
               [l = self.get(), why] { l->mark_down(why); });
  });
}

// ── reading ──

/// What came of the peer's tensors, to be joined with their heads.
class link::bulk_sink final : public frame_sink {
 public:
  explicit bulk_sink(link& of) noexcept : link_(of) {}

  [[nodiscard]] const limits& bounds() const noexcept override { return link_.bounds(); }
  [[nodiscard]] expected<blob> allocate(std::size_t size) override { return link_.allocate(size); }
  [[nodiscard]] intrusive_ptr<given_memory> given_for(const frame& bulk) override {
    return link_.given_for_bulk(bulk);
  }
  [[nodiscard]] expected<void> frame_arrived(frame&& f) override {
    if (!is_bulk(f)) return not_bulk();
    const std::uint64_t bytes = f.wire_size();
    came.push_back({std::move(f), bytes, {}});
    return {};
  }
  [[nodiscard]] expected<void> frame_skipped(frame&& rest, partial_frame, std::uint64_t bytes,
                                             error why) override {
    if (!is_bulk(rest)) return not_bulk();
    came.push_back({std::move(rest), bytes, std::move(why)});
    return {};
  }
  void progress() noexcept override {
    link_.bulk_in_.progress.fetch_add(1, std::memory_order_relaxed);
    link_.received_.fetch_add(1, std::memory_order_relaxed);
  }

  std::vector<bulk_body> came;

 private:
  link& link_;
};

inline intrusive_ptr<given_memory> link::given_for_bulk(const frame& bulk) {
  const frame_header& h = bulk.header;
  if (h.kind != frame_kind::bulk) return nullptr;
  return given_memory_for(kind_behind(h), bulk);
}

inline asio::awaitable<void> link::read_bulk_loop(connection_ptr connection) {
  const intrusive_ptr<link> self(this);
  bulk_sink sink(*this);
  error why;
  const bool shared = connection->shares_reading();
  try {
    read_bulk(nullptr, sink);
    for (;;) {
      for (;;) {  // bounded: by the heads that come
        intrusive_ptr<event> head;
        {
          const std::lock_guard lock(reading_mutex_);
          head = bulk_in_.head_comes;
        }
        if (!head) break;
        co_await event::wait(std::move(head));
      }
      if (shared) {
        co_await connection->readable();
      } else {
        co_await connection->read(sink);
      }
      read_bulk(shared ? connection.get() : nullptr, sink);
    }
  } catch (...) {  // of its transport, or of what came
    why = caught_or_die(me_, call_progress::maybe_executed);
  }
  {
    const std::lock_guard lock(bulk_in_.reading);
    bulk_in_.shared = nullptr;
  }
  bulk_broke(std::move(why));
  connection_ptr gone;
  const std::lock_guard lock(mutex_);
  gone.swap(bulk_connection_);  // with what had come of a frame: its memory counts
}

/// On the connection's thread: joins what was read, and before it reads `from`, if it is given.
/// Throws what ends the link.
inline void link::read_bulk(any_connection* from, bulk_sink& sink) {
  request_queue::reader inbox(me_.requests());
  std::optional<helper::batch> batch;
  if (inbox.here()) batch.emplace(me_.helper());
  {
    const std::lock_guard reading(bulk_in_.reading);
    if (from && !dead_.load(std::memory_order_relaxed)) {
      static_cast<void>(from->read_at_once(sink));
    }
    const std::lock_guard lock(reading_mutex_);
    if (auto ok = bulk_arrived(sink); !ok) throw rpc_error(ok.error());
  }
  if (inbox.here()) me_.requests().drain();
}

/// Calls have ended: what has come whole of their large tensors still counts.
inline void link::read_last_bulk() noexcept {
  bulk_sink sink(*this);
  const std::lock_guard reading(bulk_in_.reading);
  connection_ptr from;
  {
    const std::lock_guard lock(mutex_);
    from = bulk_connection_;
  }
  if (!from || !from->shares_reading()) return;
  error why;
  const std::lock_guard lock(reading_mutex_);
  // Not more: whoever goes on sending would be read for ever.
  static_cast<void>(read_bulk_at_once(*from, sink, 64, why));
}

/// The helper, which holds the lock of who reads. False: something was left.
inline bool link::help_bulk(error& why) {
  const std::unique_lock reading(bulk_in_.reading, std::try_to_lock);
  if (!reading.owns_lock()) return false;
  if (!bulk_in_.shared) return !bulk_in_.broken;
  bulk_sink sink(*this);
  error broke;
  if (read_bulk_at_once(*bulk_in_.shared, sink, 16, broke)) return true;
  if (!broke) return false;
  bulk_in_.shared = nullptr;
  bulk_in_.broken = true;  // it is told again and again
  if (broke == errc::peer_died) {
    bulk_broke(std::move(broke));
  } else if (!why) {
    why = std::move(broke);
  }
  return false;
}

/// Both locks are held. Whether all was read that is here.
inline bool link::read_bulk_at_once(any_connection& from, bulk_sink& sink, int most, error& why) {
  try {
    for (int reads = 0; reads < most; ++reads) {
      const bool some = from.read_at_once(sink);
      if (auto ok = bulk_arrived(sink); !ok) why = ok.error();
      if (why || bulk_in_.head_comes) return false;
      if (!some) return true;
    }
  } catch (...) {
    why = caught_or_die(me_, call_progress::maybe_executed);
  }
  return false;
}

/// Both locks are held.
inline expected<void> link::bulk_arrived(bulk_sink& sink) {
  if (dead_.load(std::memory_order_relaxed)) {
    sink.came.clear();
    bulk_in_.early.clear();
    return {};
  }
  if (sink.came.empty() && bulk_in_.early.empty()) return {};
  write_batch sent(me_);  // of another thread than the worker's
  arrived_at_ = me_.time().now();
  std::uint64_t bytes = 0;
  for (auto* const from : {&bulk_in_.early, &sink.came}) {
    for (bulk_body& b : std::exchange(*from, {})) {
      bytes += b.bytes;
      bulk_in_.bodies.push_back(std::move(b));
    }
  }
  me_.count_received(0, bytes);
  return join_bulk();
}

inline expected<void> link::await_bulk(bulk_head&& head) {
  bulk_in_.heads.push_back(std::move(head));
  return join_bulk();
}

inline expected<void> link::join_bulk() {
  bulk_head head;
  bulk_body body;
  expected<void> ok;
  while (ok && !dead_.load(std::memory_order_relaxed) && bulk_in_.next(head, body)) {
    ok = body.is_of(head)
             ? whole(std::move(head), std::move(body))
             : broken_protocol("large tensors that belong to no message, or to another one");
    head = {};
    body = {};
  }
  bulk_in_.settle();
  return ok;
}

/// A frame whose tensors have come, or are lost, goes on.
inline expected<void> link::whole(bulk_head&& head, bulk_body&& body) {
  if (head.of.kind == frame_kind::request) {
    std::unique_lock lock(serving_mutex_);
    if (!bulk_granted_.arrived(body.bytes)) {
      return broken_protocol("more large tensors than the window holds");
    }
    if (served_request* const call = head.request()) {
      call->bulk_cost = body.bytes;
    } else {  // it failed when its head came
      bulk_granted_.begun(body.bytes);
      const bool due = bulk_granted_.due();
      lock.unlock();
      if (due) give_credit();
    }
  }
  if (const intrusive_ptr<served_request> call{head.request()}) {
    if (body.lost && !call->failure) call->failure = body.lost;
    call->in.take_blobs(std::move(body.f.blobs), std::move(body.lost));
    auto* const place = std::get_if<held_request*>(&head.what);
    if (!place) {
      dispatch(call);
      return {};
    }
    (*place)->whole = true;
    const bulk_in::reference by = call->target->reference;
    while (const auto next = bulk_in_.leave_line(by)) dispatch(next);
    return {};
  }
  arrived_frame* came = std::get_if<arrived_frame>(&head.what);
  auto* const held = std::get_if<held_frame*>(&head.what);
  if (held) came = &(*held)->came;
  if (!came) return {};
  if (body.lost) {
    if (auto ok = detail::drop_tensors(came->f); !ok) return ok;
    came->allocation_error = std::move(body.lost);
  } else {
    came->f.blobs = std::move(body.f.blobs);
  }
  if (!held) return to_worker(std::move(*came));
  (*held)->whole = true;
  return release_held();
}

/// Frames of gradients keep their order among themselves.
inline expected<void> link::hold(arrived_frame&& came) {
  const frame_header of = came.f.header;
  const bool has_bulk = came.f.on_bulk();
  const bool waits = has_bulk && !came.allocation_error;
  bulk_in_.held_bytes += came.bytes;
  if (bulk_in_.held_bytes > most_unread_references(me_.settings())) {
    return tl::unexpected(error(errc::resource_exhausted,
                                "the peer sends frames of gradients, and not their large tensors",
                                call_progress::maybe_executed, origin::transport));
  }
  bulk_in_.held.push_back({std::move(came), !waits});
  held_frame* const self = &bulk_in_.held.back();
  if (has_bulk) {
    bulk_head head{of, {}};
    if (waits) head.what = self;
    if (auto ok = await_bulk(std::move(head)); !ok) return ok;
  }
  return release_held();
}

inline expected<void> link::release_held() {
  while (!bulk_in_.held.empty() && bulk_in_.held.front().whole) {
    arrived_frame came = std::move(bulk_in_.held.front().came);
    bulk_in_.held.pop_front();
    bulk_in_.held_bytes -= came.bytes;
    if (auto ok = service_frame(std::move(came)); !ok) return ok;
  }
  return {};
}

/// Nothing is joined any more. Requests among what waited hold this link.
inline void link::drop_bulk() noexcept {
  std::list<bulk_head> heads;
  std::list<bulk_body> bodies;
  std::list<held_frame> held;
  std::map<bulk_in::reference, std::list<held_request>> lines;
  {
    const std::lock_guard lock(reading_mutex_);
    lines.swap(bulk_in_.lines);
    heads.swap(bulk_in_.heads);
    bodies.swap(bulk_in_.bodies);
    held.swap(bulk_in_.held);
    bulk_in_.settle();
  }
  for (const bulk_head& h : heads) {
    if (const auto* const call = std::get_if<intrusive_ptr<served_request>>(&h.what))
      forget(**call);
  }
  for (const auto& [by, line] : lines) {
    for (const held_request& r : line) forget(*r.call);
  }
}

}  // namespace weft::engine
