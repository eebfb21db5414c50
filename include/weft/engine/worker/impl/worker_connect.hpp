// SPDX-License-Identifier: BSL-1.0
// Bodies of ../worker.hpp: opening, accepting, judging connections, and signs of life.
// Nothing here needs the worker's thread, which may be computing for as long as it likes.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/link/handshake.hpp>
#include <weft/engine/link/impl/link_read.hpp>
#include <weft/engine/worker/worker.hpp>
#include <weft/transport/loopback.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace weft::engine {

/// Feeds a handshake with the frames of its connection, and after it takes what comes right behind.
class handshake_sink final : public frame_sink {
 public:
  handshake_sink(worker& me, handshake& h) : me_(me), handshake_(h) {
    small_.payload = small_.handshake - header_size;
    small_.table = 0;
    small_.tensors = 0;
  }
  [[nodiscard]] const limits& bounds() const noexcept override {
    return accepted() ? me_.settings().bounds : small_;
  }
  [[nodiscard]] expected<blob> allocate(std::size_t size) override {
    if (accepted() && link_) return link_->allocate(size);
    return tl::unexpected(error(errc::protocol_error, "tensors before the handshake",
                                call_progress::not_sent, origin::transport));
  }
  [[nodiscard]] expected<void> frame_arrived(frame&& f) override {
    partial_ = false;
    if (accepted()) {
      const std::uint64_t bytes = f.wire_size();
      early_.push_back({std::move(f), bytes, {}});
    } else if (auto answer = handshake_.arrived(std::move(f))) {
      answers.push_back(*std::move(answer));
    }
    return {};
  }
  [[nodiscard]] expected<void> frame_skipped(frame&& rest, partial_frame what, std::uint64_t bytes,
                                             error why) override {
    partial_ = false;
    if (!accepted()) return tl::unexpected(std::move(why));
    if (rest.header.kind == frame_kind::bulk) {
      early_.push_back({std::move(rest), bytes, std::move(why)});
      return {};
    }
    auto came = link::to_partial(std::move(rest), what, bytes, std::move(why));
    if (!came) return tl::unexpected(std::move(came).error());
    early_.push_back(*std::move(came));
    return {};
  }
  void progress() noexcept override { partial_ = true; }
  /// Whose tensors may follow.
  void belongs_to(link& link) noexcept { link_ = &link; }

  [[nodiscard]] link::early take_early() {
    return {std::exchange(early_, {}), partial_, handshake_.peer_takes_bulk()};
  }

  std::vector<frame> answers;

 private:
  [[nodiscard]] bool accepted() const noexcept {
    return handshake_.current_state() == handshake::state::accepted;
  }

  worker& me_;
  handshake& handshake_;
  link* link_ = nullptr;
  std::vector<link::arrived_frame> early_;
  bool partial_ = false;
  limits small_;
};

/// Writes one frame, waiting if it must.
inline asio::awaitable<void> write_alone(connection_ptr to, frame f) {
  outbox batch;
  batch.push(std::move(f));
  for (;;) {
    const write_status result = to->try_write(batch);
    if (result == write_status::everything) co_return;
    if (result == write_status::closed) {
      throw rpc_error(errc::peer_died, "the connection closed during the handshake");
    }
    co_await to->writable();
  }
}

/// Steps the handshake until it waits no longer. Throws what ended the connection meanwhile.
inline asio::awaitable<void> converse(connection_ptr connection, handshake& h,
                                      handshake_sink& sink) {
  error why;
  try {
    while (h.current_state() == handshake::state::waiting) {
      co_await connection->read(sink);
      for (frame& answer : std::exchange(sink.answers, {})) {
        co_await write_alone(connection, std::move(answer));
      }
    }
    co_return;
  } catch (const rpc_error& e) {
    why = e.error();
  }
  if (auto answer = h.failed(why)) co_await write_alone(connection, std::move(*answer));
  throw rpc_error(why);
}

/// Runs `work` on `io`, where this is awaited, and cancels it at the deadline.
inline asio::awaitable<void> limited(clock& time, asio::io_context& io, duration limit,
                                     asio::awaitable<void> work) {
  struct bound {
    asio::cancellation_signal stop;
    bool passed = false;
  };
  const auto b = std::make_shared<bound>();
  const auto alarm = time.make_timer(io);
  arm_or_die(*alarm, later(time.now(), limit), [b] {
    b->passed = true;
    b->stop.emit(asio::cancellation_type::terminal);
  });
  try {
    co_await asio::co_spawn(io, std::move(work),
                            asio::bind_cancellation_slot(b->stop.slot(), asio::use_awaitable));
  } catch (const std::exception&) {
    if (!b->passed) throw;
    throw rpc_error(errc::timed_out, "the peer did not answer the handshake");
  }
}

// ── opening ──

inline void worker::connect(link& to) {
  if (to.rank() == members_.rank) {
    to.install(make_any_connection(loopback(env_.context), "self"), env_.context, {});
    return;
  }
  asio::io_context& io = env_.io.empty() ? front() : to.io();
  // Not from here, which may be that thread: what sends may hold a lock that `up` takes, too.
  post_or_die(
      io, [this, self = intrusive_ptr<link>(&to), &io] { spawn_or_die(io, connect_to(self, io)); });
}

inline asio::awaitable<void> worker::connect_to(intrusive_ptr<link> to, asio::io_context& io) {
  error why;
  try {
    co_await limited(env_.time, io, options_.handshake_deadline, meet(to, io));
    co_return;
  } catch (...) {  // of the handshake, or of its transport
    why = caught_or_die(*this);
  }
  if (why == errc::protocol_error && env_.transports.was_wrong(to->rank())) {
    why = error(errc::peer_died, "no worker listens there: " + why.message());
  }
  if (why == errc::timed_out) {
    why = why.with([&](error_detail& d) {
      d.text += "; it listens at ";
      const auto& all = members_.members[to->rank()].addresses;
      for (const auto& a : all) d.text += (&a == &all.front() ? "" : ", ") + a.endpoint;
    });
  }
  to->cannot_connect(std::move(why));
}

/// One try to connect, ending in `install` or an exception.
inline asio::awaitable<void> worker::meet(intrusive_ptr<link> to, asio::io_context& io) {
  connection_ptr connection = co_await env_.transports.connect(members_, to->rank(), io);
  struct closer {
    connection_ptr& c;
    ~closer() {
      if (c) c->close();
    }
  } close_if_left{connection};
  handshake h(members_, to->rank(), random_);
  handshake_sink sink(*this, h);
  sink.belongs_to(*to);
  co_await write_alone(connection, h.hello());
  co_await converse(connection, h, sink);
  if (h.current_state() == handshake::state::accepted) {
    env_.transports.was_right(to->rank());
    to->install(std::exchange(connection, nullptr), io, sink.take_early());
  } else if (h.why() == errc::closed) {
    throw rpc_error(h.why());  // the other's connection stays, and is on its way
  } else if (env_.transports.was_wrong(to->rank())) {
    throw rpc_error(errc::peer_died, "another process listens there: " + h.why().message(),
                    call_progress::not_sent);
  } else {
    to->mark_down(h.why());
  }
}

inline void worker::connect_bulk(link& to) {
  asio::io_context& io = env_.io.empty() ? front() : to.io();
  post_or_die(io, [this, self = intrusive_ptr<link>(&to), &io] {
    spawn_or_die(io, connect_bulk_to(self, io));
  });
}

inline asio::awaitable<void> worker::connect_bulk_to(intrusive_ptr<link> to, asio::io_context& io) {
  connection_ptr connection;
  try {
    co_await limited(env_.time, io, options_.handshake_deadline, meet_for_bulk(to, io, connection));
  } catch (...) {  // large tensors travel with their calls, until it is tried again
    static_cast<void>(caught_or_die(*this));
    if (connection) connection->close();
    connection = nullptr;
  }
  to->bulk_opened(std::move(connection), io);
}

inline asio::awaitable<void> worker::meet_for_bulk(intrusive_ptr<link> to, asio::io_context& io,
                                                   connection_ptr& out) {
  out = co_await env_.transports.connect(members_, to->rank(), io);
  handshake h(members_, to->rank(), random_, handshake::purpose::bulk);
  handshake_sink sink(*this, h);
  co_await write_alone(out, h.hello());
  co_await converse(out, h, sink);
  if (h.current_state() != handshake::state::accepted) throw rpc_error(h.why());
  env_.transports.was_right(to->rank());
}

// ── accepting ──

inline void worker::accept(connection_ptr connection, asio::io_context& io) {
  asio::co_spawn(io, welcome_in(connection, io), [connection](std::exception_ptr failed) {
    if (failed) connection->close();  // a stranger: nobody here waits for it
    die_of(failed);
  });
}

/// On the connection's I/O thread.
inline asio::awaitable<void> worker::welcome_in(connection_ptr connection, asio::io_context& io) {
  handshake h(members_, random_);
  handshake_sink sink(*this, h);
  link* link = nullptr;
  co_await limited(env_.time, io, options_.handshake_deadline,
                   accept_handshake(connection, h, link));
  if (!link) {
    connection->close();
    co_return;
  }
  try {
    // It is a member: until it says that it is ready, or closes the connection, it is only slow.
    sink.belongs_to(*link);
    const bool bounded = options_.lost_after > duration(0);
    co_await limited(env_.time, io, bounded ? options_.lost_after : options_.handshake_deadline,
                     converse(connection, h, sink));
    if (h.current_state() != handshake::state::accepted) throw rpc_error(h.why());
  } catch (...) {
    h.is_for_bulk() ? link->unreserve_bulk() : link->unreserve();
    throw;
  }
  if (h.is_for_bulk()) co_return link->install_bulk(std::move(connection), io, sink.take_early());
  link->install(std::move(connection), io, sink.take_early());
}

/// Whose connection it is, once it was welcomed.
inline asio::awaitable<void> worker::accept_handshake(connection_ptr connection, handshake& h,
                                                      link*& out) {
  handshake_sink sink(*this, h);
  co_await converse(connection, h, sink);
  if (h.current_state() != handshake::state::proven) co_return;
  link& link = links_[h.peer()];
  using welcome = link::welcome;
  switch (h.is_for_bulk() ? link.reserve_bulk() : link.reserve()) {
  case welcome::yes:
    break;
  case welcome::another_stays:
    co_return co_await write_alone(
        connection, h.refuse(error(errc::closed, "another connection between the two stays")));
  case welcome::down:
    co_return co_await write_alone(connection, h.refuse(link.reason()));
  }
  try {
    co_await write_alone(connection, h.welcome());
  } catch (...) {
    h.is_for_bulk() ? link.unreserve_bulk() : link.unreserve();
    throw;
  }
  out = &link;
}

// ── signs of life ──

inline void worker::start_heartbeats() {
  beat_ = env_.time.make_timer(front());
  post_or_die(front(), [this] {
    helper().start();
    send_heartbeats();
  });
  std::vector<asio::io_context*> where = env_.io;
  if (where.empty()) where.push_back(&env_.context);
  if (where.front() != &front()) where.push_back(&front());
  for (asio::io_context* io : where) {
    judges_.emplace_back(io, env_.time.make_timer(*io));
  }
  for (std::size_t i = 0; i < judges_.size(); ++i) {
    post_or_die(*judges_[i].first, [this, i] { check_peers(i); });
  }
}

inline void worker::send_heartbeats() {
  const std::uint64_t looks = loop_ticks_.load(std::memory_order_relaxed);
  const bool looked = looks != std::exchange(loop_ticks_seen_, looks);
  const bool reading = looked || !links_on_context() || helper().reads_links();
  for (link& l : links_) l.send_heartbeat(reading);
  arm_or_die(*beat_, env_.time.now() + heartbeat_interval_, [this] { send_heartbeats(); });
}

inline void worker::check_peers(std::size_t which) {
  auto& [io, alarm] = judges_[which];
  if (on_context(*io)) loop_ticks_.fetch_add(1, std::memory_order_relaxed);
  for (link& l : links_) l.check_peer(*io, heartbeat_interval_);
  arm_or_die(*alarm, env_.time.now() + heartbeat_interval_, [this, which] { check_peers(which); });
}

}  // namespace weft::engine
