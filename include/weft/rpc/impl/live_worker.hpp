// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/live_worker.hpp.
#pragma once

#include <weft/rpc/impl/live_link_read.hpp>
#include <weft/rpc/live_worker.hpp>
#include <weft/rpc/session.hpp>
#include <weft/transport/loopback.hpp>

#include <asio/detached.hpp>
#include <asio/post.hpp>

#include <algorithm>

namespace weft::detail {

template <class T>
live_worker<T>::live_worker(environment env, membership all, options settings)
    : worker(std::move(env), std::move(all), std::move(settings)),
      buffers_(options_.pool_bytes),
      memory_(make_ref<memory_budget>(options_.bounds.worker_tensor_bytes, nullptr)),
      run_(members_.rank, members_.size()) {
  for (std::uint32_t r = 0; r < members_.size(); ++r) {
    // A worker talks to itself without leaving its thread.
    asio::io_context& io =
        env_.io.empty() || r == members_.rank ? env_.context : *env_.io[r % env_.io.size()];
    links_.push_back(make_ref<live_link<T>>(*this, r, io));
  }
}

template <class T>
live_worker<T>::~live_worker() {
  stop_pool();
  detach();
  for (const ref<live_link<T>>& l : links_) l->drop_waiting();
  for (const ref<coroutine_runner<T>>& runner : idle_runners_) runner->drop();
}

/// Receives handshake frames, then whatever came right behind them.
template <class T>
class handshake_sink final : public frame_sink {
 public:
  handshake_sink(worker& me, live_link<T>* to) : me_(me), link_(to) {
    small_.payload = small_.handshake - header_size;
    small_.table = 0;
    small_.tensors = 0;
  }
  [[nodiscard]] const limits& bounds() const noexcept override {
    return open_ ? me_.settings().bounds : small_;
  }
  [[nodiscard]] expected<blob> allocate(std::size_t size) override {
    if (open_ && link_) return link_->allocate(size);
    return tl::unexpected(error(errc::protocol_error, "tensors before the handshake",
                                execution::not_sent, origin::transport));
  }
  [[nodiscard]] expected<void> frame_arrived(frame&& f) override {
    if (frames.empty() && f.header.kind == frame_kind::welcome) {
      // The other side may send at once what it had waiting for us; it is a member by its answer.
      auto theirs = read_greeting(f);
      if (!theirs) return tl::unexpected(theirs.error());
      if (auto ok = judge(me_.members(), *theirs, shows_token::no); !ok) return ok;
      open_ = true;
    } else if (!frames.empty() && !open_) {
      return tl::unexpected(error(errc::protocol_error, "a frame before the handshake was over",
                                  execution::not_sent, origin::transport));
    }
    frames.push_back(std::move(f));
    return {};
  }
  void progress() noexcept override {}

  std::vector<frame> frames;

 private:
  worker& me_;
  live_link<T>* link_;
  limits small_;
  bool open_ = false;
};

/// Writes one frame, waiting if it must.
template <class = void>
asio::awaitable<void> write_alone(connection_ptr to, frame f) {
  cursor batch;
  batch.push(std::move(f));
  for (;;) {
    const written result = to->try_write(batch);
    if (result == written::everything) co_return;
    if (result == written::closed) {
      throw rpc_error(errc::peer_died, "the connection closed during the handshake");
    }
    co_await to->writable();
  }
}

/// Closes a connection that has not finished its handshake by the deadline. On `io` only.
class handshake_deadline {
 public:
  handshake_deadline(worker& me, asio::io_context& io, connection_ptr connection)
      : timer_(me.time().make_timer(io)) {
    timer_->arm(me.time().now() + me.settings().handshake_deadline,
                [c = std::move(connection), passed = passed_] {
                  *passed = true;
                  c->close();
                });
  }
  [[nodiscard]] bool passed() const noexcept { return *passed_; }

 private:
  std::shared_ptr<bool> passed_ = std::make_shared<bool>(false);
  std::unique_ptr<timer> timer_;
};

// ── from I/O threads ──

template <class T>
void live_worker<T>::hand_over(ref<live_link<T>> from, frame f) {
  bool wake = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    wake = inbox_.empty();
    inbox_.push_back({std::move(from), std::move(f), nullptr});
  }
  if (wake) asio::post(env_.context, [this] { drain(); });
}
template <class T>
void live_worker<T>::hand_over(ref<invocation> call) {
  bool wake = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    wake = inbox_.empty();
    inbox_.push_back({nullptr, {}, std::move(call)});
  }
  if (wake) asio::post(env_.context, [this] { drain(); });
}
/// By a coroutine that waits, else by a new one.
template <class T>
void live_worker<T>::serve(ref<invocation> call) {
  while (!idle_runners_.empty()) {
    const ref<coroutine_runner<T>> runner = std::move(idle_runners_.back());
    idle_runners_.pop_back();
    if (runner->reusable()) {
      runner->give(std::move(call));
      return;
    }
    runner->drop();
  }
  auto done = [this](const ref<coroutine_runner<T>>& runner, invocation& ended) {
    static_cast<live_link<T>&>(ended.from()).coroutine_ended(ended);
    if (idle_runners_.size() < most_idle_runners) {
      idle_runners_.push_back(runner);
    } else {
      runner->retire();
    }
  };
  make_ref<coroutine_runner<T>>(env_.context, std::move(done))->give(std::move(call));
}

template <class T>
void live_worker<T>::drain() {
  {
    const std::lock_guard lock(inbox_mutex_);
    draining_.swap(inbox_);
  }
  cork cork;
  std::size_t since_flush = 0;
  for (handed& h : draining_) {
    if (h.call) {
      auto& from = static_cast<live_link<T>&>(h.call->from());
      from.start_coroutine(std::move(h.call));
    } else {
      h.from->handle_here(std::move(h.f));
    }
    if (++since_flush == 32) {
      cork.flush();
      since_flush = 0;
    }
  }
  draining_.clear();
}

// ── connecting ──

template <class T>
void live_worker<T>::connect(live_link<T>& to) {
  if (to.rank() == members_.rank) {
    to.install(erase(loopback(env_.context), "self"), env_.context, {});
    return;
  }
  asio::co_spawn(to.io(), dial(ref<live_link<T>>(&to), to.io()), [](std::exception_ptr) {});
}

/// On `io`, the link's: the link may move to another while this dials, with an accepted connection.
template <class T>
asio::awaitable<void> live_worker<T>::dial(ref<live_link<T>> to, asio::io_context& io) {
  error why;
  try {
    connection_ptr connection = co_await env_.transports.connect(members_, to->rank(), io);
    handshake_deadline deadline(*this, io, connection);
    handshake_sink<T> sink(*this, to.get());
    try {
      co_await write_alone(connection,
                           greeting_frame(frame_kind::hello, introduce(members_, to->rank())));
      while (sink.frames.empty()) co_await connection->read(sink);
    } catch (const rpc_error&) {
      if (!deadline.passed()) throw;
      throw rpc_error(errc::timed_out, "the handshake was not answered");
    }
    frame answer = std::move(sink.frames.front());
    sink.frames.erase(sink.frames.begin());
    if (answer.header.kind == frame_kind::welcome) {
      auto install = [to, &io, c = std::move(connection), f = std::move(sink.frames)]() mutable {
        to->install(std::move(c), io, std::move(f));
      };
      asio::post(env_.context, std::move(install));
      co_return;
    }
    connection->close();
    why = answer.header.kind == frame_kind::refuse
              ? read_refusal(answer)
              : error(errc::protocol_error, "the answer to a hello was neither welcome nor refuse");
    // The other side's connection stays; it is on its way to this worker's acceptor.
    if (why == errc::closed) co_return;
  } catch (const rpc_error& e) {
    why = e.error();
  } catch (const std::exception& e) {
    why = error(errc::peer_died, e.what(), execution::not_sent, origin::transport);
  }
  asio::post(env_.context, [to, why = std::move(why)]() mutable {
    if (to->now() != link::state::up) to->lose(std::move(why));
  });
}

template <class T>
void live_worker<T>::accept(connection_ptr connection, asio::io_context& io) {
  asio::co_spawn(io, greet(std::move(connection), io), [](std::exception_ptr) {});
}

/// On the connection's I/O thread.
template <class T>
asio::awaitable<void> live_worker<T>::greet(connection_ptr connection, asio::io_context& io) {
  std::optional<handshake_deadline> deadline(std::in_place, *this, io, connection);
  handshake_sink<T> sink(*this, nullptr);
  error refused;
  greeting theirs;
  try {
    while (sink.frames.empty()) co_await connection->read(sink);
    const frame& hello = sink.frames.front();
    if (hello.header.kind != frame_kind::hello) {
      refused = error(errc::protocol_error, "the first frame was not a hello");
    } else if (auto read = read_greeting(hello); !read) {
      refused = read.error();
    } else if (auto ok = judge(members_, *read, shows_token::yes); !ok) {
      refused = ok.error();
    } else {
      theirs = *read;
    }
  } catch (const rpc_error& e) {
    if (e.error() != errc::version_mismatch) {
      connection->close();
      co_return;  // a stranger: nobody here waits for it
    }
    refused = e.error();
  }
  // Which connection stays is decided on the worker's thread, so that decisions are in one order.
  auto decide = [this, &refused, &theirs]() -> asio::awaitable<bool> {
    if (refused) co_return false;
    live_link<T>& to = *links_[theirs.rank];
    const link::state now = to.now();
    const bool ours_stays = now == link::state::connecting && members_.rank < theirs.rank;
    if (now == link::state::down) {
      refused = to.reason();
    } else if (ours_stays || !to.promise()) {
      refused = error(errc::closed, "another connection between the two stays");
    }
    co_return !refused;
  };
  const bool welcome = co_await asio::co_spawn(env_.context, decide(), asio::use_awaitable);
  try {
    if (!welcome) {
      co_await write_alone(connection, refusal_frame(refused));
      connection->close();
      co_return;
    }
    co_await write_alone(connection,
                         greeting_frame(frame_kind::welcome, introduce(members_, theirs.rank)));
  } catch (const rpc_error&) {
    connection->close();
    if (welcome) {
      asio::post(env_.context, [to = links_[theirs.rank]] { to->break_promise(); });
    }
    co_return;
  }
  deadline.reset();
  asio::post(env_.context, [this, rank = theirs.rank, c = std::move(connection), &io]() mutable {
    links_[rank]->install(std::move(c), io, {});
  });
}

// ── the run ──

template <class T>
void live_worker<T>::send_control(std::uint32_t rank, const run_message& m) {
  message out(options_.bounds);
  out.payload().number(m.what);
  out.payload().number(m.rank);
  codec<std::string>::encode(out.payload(), m.why);
  frame_header header;
  header.kind = frame_kind::control;
  live_link<T>& to = *links_[rank];
  if (to.append(std::move(out).finish(header))) to.flush();
}

template <class T>
void live_worker<T>::control(live_link<T>& from, incoming_message& m) {
  run_message what;
  try {
    reader r = m.payload();
    const auto kind = r.number<std::uint8_t>();
    what.what = static_cast<run_message::kind>(kind);
    what.rank = r.number<std::uint32_t>();
    what.why = codec<std::string>::decode(r);
    r.finish();
  } catch (const rpc_error& e) {
    from.lose(error(errc::protocol_error, "an unreadable control frame: " + e.error().message()));
    return;
  }
  if (auto todo = run_.received(from.rank(), what)) {
    act(*todo);
  } else {
    from.lose(error(errc::protocol_error, "a control frame that breaks the run's protocol"));
  }
}

template <class T>
void live_worker<T>::lost(live_link<T>& peer, const error& reason) {
  act(run_.link_lost(peer.rank(), reason.message()));
}

template <class T>
void live_worker<T>::act(const run_state::actions& todo) {
  for (const auto& [rank, m] : todo.send) send_control(rank, m);
  if (todo.lose) {
    const auto& [rank, why] = *todo.lose;
    links_[rank]->lose(error(errc::peer_died, why, execution::maybe_executed, origin::transport));
  }
  if (todo.end) ended_->set();
}

template <class T>
void live_worker<T>::shutdown(const error& why) {
  act(run_.main_failed(rank(), why.message()));
}

template <class T>
asio::awaitable<error> live_worker<T>::run(std::function<asio::awaitable<void>(worker&)> main_) {
  env_.transports.accept(
      [this]() -> asio::io_context& {
        return env_.io.empty() ? env_.context : *env_.io[next_io_++ % env_.io.size()];
      },
      [this](connection_ptr c, asio::io_context& io) { accept(std::move(c), io); });
  trim_buffers();
  if (rank() != 0) links_[0]->open();
  auto body = [](live_worker& me,
                 std::function<asio::awaitable<void>(worker&)> f) -> asio::awaitable<void> {
    try {
      co_await f(me);
      me.act(me.run_.main_returned());
    } catch (const rpc_error& e) {
      // A main that fails because another worker is gone is not the one to name.
      const auto dead = me.members_.find(e.error().detail().peer);
      const bool blame = e.error() == errc::peer_died && dead;
      me.act(me.run_.main_failed(blame ? *dead : me.rank(), e.what()));
    } catch (const std::exception& e) {
      me.act(me.run_.main_failed(me.rank(), me.in_words(e)));
    } catch (...) {
      me.act(me.run_.main_failed(me.rank(), "it threw something that is not a std::exception"));
    }
  };
  future<void> running =
      start_on(scoped(env_.context, make_ref<scope>()), body(*this, std::move(main_)));
  co_await event::async_wait(ended_, asio::use_awaitable);
  const time_point deadline = env_.time.now() + options_.shutdown_deadline;
  error result;
  if (const auto& failure = run_.failure()) {
    const auto& [who, why] = *failure;
    result = error(who == rank() ? errc::worker_failed : errc::peer_died, why)
                 .with([&, w = who](error_detail& d) { d.peer = members_.members[w].name; });
    auto soon = [&] { return std::min(deadline, env_.time.now() + std::chrono::seconds(1)); };
    if (rank() == 0) {
      co_await until(soon(), [this] { return all_sent(); });
    } else {
      // Rank 0 must hear of it, or it would wait for ever; and it before others, who would only
      // see a closed connection. It answers the one that failed by closing the link.
      co_await until(deadline, [this] { return sent(*links_[0]); });
      if (who == rank()) {
        co_await until(soon(), [this] { return links_[0]->now() == link::state::down; });
      }
    }
    const error ending(errc::peer_died,
                       "the run ended: worker '" + members_.members[who].name + "': " + why);
    for (const ref<live_link<T>>& l : links_) {
      if (l->rank() == rank()) continue;
      const error& reason = l->rank() == who ? result : ending;
      if (rank() == 0) {
        l->fail_calls(reason);
      } else {
        l->lose(reason);
      }
    }
    running.request_stop();
    co_await until(soon(), [&running] { return running.ready(); });
  } else {
    for (const auto& s : services_) {
      if (s) co_await s->stop(deadline);
    }
    co_await until(deadline, [this] { return all_sent(); });
  }
  // Rank 0 leaves last, so that nobody mistakes its leaving for a loss.
  if (rank() == 0) {
    co_await until(std::min(deadline, env_.time.now() + std::chrono::seconds(5)), [this] {
      return std::all_of(links_.begin(), links_.end(), [this](const ref<live_link<T>>& l) {
        const auto now = l->now();
        return l->rank() == rank() || now != link::state::up;
      });
    });
  }
  env_.transports.close();
  for (const ref<live_link<T>>& l : links_) l->close();
  co_await until(std::min(deadline, env_.time.now() + std::chrono::milliseconds(100)),
                 [&running] { return running.ready(); });
  deadlines_.stop();
  trim_->cancel();
  co_return result;
}

/// Gives idle receive buffers back to the system.
template <class T>
void live_worker<T>::trim_buffers() {
  if (!trim_) trim_ = env_.time.make_timer(env_.context);
  trim_->arm(env_.time.now() + options_.pool_idle, [this] {
    buffers_.release_idle(env_.time.now().time_since_epoch(), options_.pool_idle);
    trim_buffers();
  });
}

template <class T>
bool live_worker<T>::sent(const live_link<T>& l) {
  return l.now() == link::state::down || l.waiting() == 0;
}
template <class T>
bool live_worker<T>::all_sent() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const ref<live_link<T>>& l) { return sent(*l); });
}

/// Looks every millisecond; for the end of a run only.
template <class T>
asio::awaitable<void> live_worker<T>::until(time_point deadline, std::function<bool()> done) {
  const auto timer = env_.time.make_timer(env_.context);
  while (!done() && env_.time.now() < deadline) {
    const ref<event> tick = make_ref<event>();
    timer->arm(env_.time.now() + std::chrono::milliseconds(1), [tick] { tick->set(); });
    co_await event::async_wait(tick, asio::use_awaitable);
  }
}

}  // namespace weft::detail
