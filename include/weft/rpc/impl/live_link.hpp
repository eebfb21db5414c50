// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/live_link.hpp: sending and connections. Reading is in live_link_read.hpp.
#pragma once

#include <weft/rpc/live_link.hpp>
#include <weft/rpc/runner.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/wire/error_codec.hpp>

#include <asio/deferred.hpp>
#include <asio/detached.hpp>
#include <asio/post.hpp>

namespace weft {

namespace detail {

/// Received tensor memory, within its link's and worker's budget.
class budgeted final : public blob_owner {
 public:
  budgeted(blob inner, ref<memory_budget> budget)
      : inner_(std::move(inner)), budget_(std::move(budget)) {}
  ~budgeted() override { budget_->give_back(inner_.size()); }

 private:
  blob inner_;
  ref<memory_budget> budget_;
};

template <class T>
live_link<T>::live_link(live_worker<T>& me, std::uint32_t rank, asio::io_context& io)
    : link(me, rank, me.deadlines(),
           [this](std::uint64_t call) {
             frame_header header;
             header.kind = frame_kind::cancel;
             header.call = call;
             frame f = message(me_.settings().bounds).finish(header);
             if (append(std::move(f))) flush();
           }),
      me_(me),
      io_(&io),
      on_worker_thread_(me.on_context(io)),
      budget_(make_ref<memory_budget>(me.settings().bounds.link_tensor_bytes, me.memory())),
      room_(make_ref<event>()) {}

template <class T>
live_link<T>::~live_link() {
  if (waiting_alarm_.listed()) me_.deadlines().remove(waiting_alarm_);
}

template <class T>
link::state live_link<T>::now() const {
  const std::lock_guard lock(mutex_);
  return state_;
}
template <class T>
std::string live_link<T>::transport() const {
  const std::lock_guard lock(mutex_);
  return connection_ ? std::string(connection_->transport()) : std::string();
}
template <class T>
error live_link<T>::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

template <class T>
expected<void> live_link<T>::send(message&& m, const frame_header& header) {
  // NOLINTBEGIN(bugprone-use-after-move): finish takes the bytes and leaves the record
  try {
    me_.each_service([&](service& s) { s.attach(*this, header, m); });
    if (!append(std::move(m).finish(header))) {
      me_.each_service([&](service& s) { s.dropped(*this, m.record()); });
      return tl::unexpected(reason());
    }
  } catch (const rpc_error& e) {
    me_.each_service([&](service& s) { s.dropped(*this, m.record()); });
    return tl::unexpected(e.error());
  }
  me_.each_service([&](service& s) { s.sent(*this, m.record()); });
  flush();
  return {};
  // NOLINTEND(bugprone-use-after-move)
}

template <class T>
bool live_link<T>::append(frame&& f) {
  bool connect = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == state::down) return false;
    outbox_.push(std::move(f));
    if (state_ == state::idle) {
      state_ = state::connecting;
      connect = true;
    }
    update_full();
  }
  if (connect) begin_connecting();
  return true;
}

template <class T>
void live_link<T>::begin_connecting() {
  asio::post(me_.context(), [self = ref<live_link>(this)] { self->me_.connect(*self); });
}

template <class T>
void live_link<T>::flush() {
  if (cork* cork = cork::current) {
    const std::lock_guard lock(mutex_);
    if (dirty_ != cork) {  // another thread's cork may stay longer than this one
      dirty_ = cork;
      cork->add(ref<link>(this));
    }
    return;
  }
  std::unique_lock lock(mutex_);
  dirty_ = nullptr;
  write_locked(lock);
}

/// Writes what goes without waiting; leaves the rest to write_rest. Unlocks.
template <class T>
void live_link<T>::write_locked(std::unique_lock<std::mutex>& lock) {
  if (state_ != state::up || writing_ || outbox_.empty()) {
    lock.unlock();
    return;
  }
  const std::uint64_t before = outbox_.waiting_bytes();
  const written result = connection_->try_write(outbox_);
  const std::uint64_t bytes = before - outbox_.waiting_bytes();
  std::vector<frame> finished;
  finished.swap(outbox_.finished());
  const std::size_t frames = finished.size();
  connection_ptr rest;
  if (result == written::blocked) {
    writing_ = true;
    rest = connection_;
  }
  update_full();
  lock.unlock();
  me_.count_sent(frames, bytes);
  if (rest) {
    asio::co_spawn(*io_, write_rest(std::move(rest)),
                   [self = ref<live_link>(this)](std::exception_ptr) {});
  }
  // `finished` dies here, without the lock; its storage goes back for the next batch.
  finished.clear();
  lock.lock();
  if (outbox_.finished().capacity() == 0) outbox_.finished().swap(finished);
  lock.unlock();
}

template <class T>
asio::awaitable<void> live_link<T>::write_rest(connection_ptr connection) {
  const ref<live_link> self(this);
  for (;;) {
    try {
      co_await connection->writable();
    } catch (const rpc_error&) {
      co_return;  // read_loop reports why
    }
    std::vector<frame> finished;
    written result = written::closed;
    {
      const std::lock_guard lock(mutex_);
      if (state_ != state::up || connection_ != connection) co_return;
      const std::uint64_t before = outbox_.waiting_bytes();
      result = connection_->try_write(outbox_);
      finished.swap(outbox_.finished());
      me_.count_sent(finished.size(), before - outbox_.waiting_bytes());
      update_full();
      if (result != written::blocked) writing_ = false;
    }
    if (result != written::blocked) co_return;
  }
}

/// Under the lock.
template <class T>
void live_link<T>::update_full() {
  const options& o = me_.settings();
  const bool full =
      outbox_.frames() >= o.outbox_frames || outbox_.waiting_bytes() >= o.outbox_bytes;
  if (full == full_.load(std::memory_order_relaxed)) return;
  full_.store(full, std::memory_order_relaxed);
  if (!full) {
    asio::post(me_.context(), [self = ref<live_link>(this)] {
      std::exchange(self->room_, make_ref<event>())->set();
    });
  }
}

template <class T>
asio::awaitable<expected<void>> live_link<T>::room(time_point deadline) {
  const ref<live_link> self(this);
  while (full()) {
    const ref<event> room = room_;
    struct alarm final : timed {
      explicit alarm(ref<event> e) : wake(std::move(e)) {}
      void expired() override { wake->set(); }
      ref<event> wake;
    };
    // Waking everybody at one's deadline is rare and harmless: the others look again.
    alarm at_deadline(room);
    me_.deadlines().add(at_deadline, deadline);
    struct remove {
      timer_list& list;
      alarm& item;
      ~remove() { list.remove(item); }
    } guard{me_.deadlines(), at_deadline};
    co_await event::async_wait(room, asio::use_awaitable);
    if (room == room_) room_ = make_ref<event>();
    if (full() && me_.time().now() >= deadline) {
      co_return tl::unexpected(
          error(errc::timed_out, "the outbox was full until the deadline", execution::not_sent));
    }
  }
  co_return expected<void>();
}

template <class T>
void live_link<T>::sent_request(message&& m, const frame_header& header) {
  me_.calls.fetch_add(1, std::memory_order_relaxed);
  if (auto sent = send(std::move(m), header); !sent) {
    // Not from within the initiation: a handler must never run inside it.
    asio::post(me_.context(),
               [self = ref<live_link>(this), call = header.call, why = sent.error()] {
                 self->slots_.complete(call, {nullptr, why});
               });
  }
}

template <class T>
std::size_t live_link<T>::waiting() const {
  const std::lock_guard lock(mutex_);
  return outbox_.frames();
}

template <class T>
void live_link<T>::open() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != state::idle) return;
    state_ = state::connecting;
  }
  begin_connecting();
}

template <class T>
bool live_link<T>::promise() {
  const std::lock_guard lock(mutex_);
  if (promised_ || state_ == state::up || state_ == state::down) return false;
  state_ = state::connecting;
  promised_ = true;
  return true;
}
template <class T>
void live_link<T>::break_promise() {
  {
    const std::lock_guard lock(mutex_);
    promised_ = false;
    if (state_ != state::connecting) return;
  }
  begin_connecting();
}

template <class T>
void live_link<T>::install(connection_ptr connection, asio::io_context& io,
                           std::vector<frame> first) {
  {
    std::unique_lock lock(mutex_);
    if (state_ == state::up || state_ == state::down) {
      connection->close();
      return;
    }
    state_ = state::up;
    io_ = &io;
    connection_ = connection;
    write_locked(lock);
  }
  me_.each_service([&](service& s) { s.up(*this); });
  auto begin = [](ref<live_link> self, connection_ptr c, std::vector<frame> frames) {
    self->arrived_ = std::move(frames);
    self->watch_stalls();
    asio::co_spawn(*self->io_, self->read_loop(std::move(c)), [self](std::exception_ptr) {});
  };
  if (on_worker_thread_) {
    begin(ref<live_link>(this), std::move(connection), std::move(first));
  } else {
    asio::post(*io_, [begin, self = ref<live_link>(this), c = std::move(connection),
                      f = std::move(first)]() mutable {
      begin(std::move(self), std::move(c), std::move(f));
    });
  }
}

template <class T>
void live_link<T>::lose(error reason) {
  frame_queue abandoned;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == state::down) return;
    state_ = state::down;
    reason_ = reason.with([&](error_detail& d) {
      d.peer = name();
      d.incarnation = me_.members().members[rank_].incarnation.low;
      d.ran = execution::not_sent;
    });
    if (connection_) connection_->close();
    abandoned = outbox_.abandon();
    full_.store(false, std::memory_order_relaxed);
  }
  slots_.fail_all(this->reason().with([](error_detail& d) { d.ran = execution::maybe_executed; }));
  for (invocation* call = serving_; call;) {
    invocation* const next = call->next;
    if (call->runner) call->runner->cancel();
    call = next;
  }
  close_waiting();
  std::exchange(room_, make_ref<event>())->set();
  me_.each_service([&](service& s) { s.down(*this, this->reason()); });
  me_.lost(*this, this->reason());
}

template <class T>
void live_link<T>::close() {
  frame_queue abandoned;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == state::down) return;
    state_ = state::down;
    reason_ = error(errc::shutting_down, "the run is over");
    if (connection_) connection_->close();
    abandoned = outbox_.abandon();
  }
  slots_.fail_all(this->reason());
  close_waiting();
  std::exchange(room_, make_ref<event>())->set();
}

}  // namespace detail
}  // namespace weft
