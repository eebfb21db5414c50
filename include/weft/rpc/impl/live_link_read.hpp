// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/live_link.hpp: reading, and where each frame goes.
#pragma once

#include <weft/rpc/impl/invocation.hpp>
#include <weft/rpc/impl/live_link.hpp>
#include <weft/rpc/runner.hpp>

namespace weft {
namespace detail {

template <class T>
const limits& live_link<T>::bounds() const noexcept {
  return me_.settings().bounds;
}

template <class T>
expected<blob> live_link<T>::allocate(std::size_t size) {
  if (!budget_->take(size)) {
    return tl::unexpected(
        error(errc::resource_exhausted,
              std::to_string(size) + " bytes of tensors announced; held from this peer " +
                  std::to_string(budget_->used()) + " of " + std::to_string(budget_->limit()) +
                  ", from all " + std::to_string(me_.memory()->used()) + " of " +
                  std::to_string(me_.memory()->limit()),
              execution::not_executed, origin::remote_runtime));
  }
  try {
    blob memory = me_.buffers().allocate(size);
    std::byte* const data = memory.data();
    return blob(data, size, make_ref<budgeted>(std::move(memory), budget_));
  } catch (const std::bad_alloc&) {
    budget_->give_back(size);
    return tl::unexpected(error(errc::resource_exhausted,
                                "no memory for " + std::to_string(size) + " bytes of tensors",
                                execution::not_executed, origin::remote_runtime));
  }
}

template <class T>
expected<void> live_link<T>::frame_arrived(frame&& f) {
  partial_ = false;
  me_.count_received(f.wire_size());
  arrived_.push_back(std::move(f));
  return {};
}

template <class T>
void live_link<T>::progress() noexcept {
  partial_ = true;
  ++progress_;
}

template <class T>
asio::awaitable<void> live_link<T>::read_loop(connection_ptr connection) {
  const ref<live_link> self(this);
  error why;
  try {
    for (;;) {
      if (auto ok = handle_arrived(); !ok) throw rpc_error(ok.error());
      co_await connection->read(*this);
    }
  } catch (const rpc_error& e) {
    why = e.error();
  } catch (const std::exception& e) {
    why = error(errc::closed, e.what(), execution::maybe_executed, origin::transport);
  }
  if (auto ok = handle_arrived(); !ok && why == errc::peer_died) why = ok.error();
  stall_.reset();
  lose_soon(std::move(why));
}

/// Frames of one read, as one batch: what they cause to be sent goes out together.
template <class T>
expected<void> live_link<T>::handle_arrived() {
  if (arrived_.empty()) return {};
  std::vector<frame> batch;
  batch.swap(arrived_);
  cork cork;
  std::size_t since_flush = 0;
  for (frame& f : batch) {
    if (auto ok = handle(std::move(f)); !ok) return ok;
    if (++since_flush == 32) {
      cork.flush();
      since_flush = 0;
    }
  }
  batch.clear();
  if (arrived_.empty()) arrived_.swap(batch);  // keep the allocation
  return {};
}

template <class T>
void live_link<T>::lose_soon(error reason) {
  // Behind everything that was handed over, so that the loss comes last.
  asio::post(me_.context(), [self = ref<live_link>(this), reason = std::move(reason)]() mutable {
    asio::post(self->me_.context(),
               [self, r = std::move(reason)]() mutable { self->lose(std::move(r)); });
  });
}

template <class T>
void live_link<T>::watch_stalls() {
  if (!stall_) stall_ = me_.time().make_timer(*io_);
  const std::uint64_t seen = progress_;
  const bool partial = partial_;
  stall_->arm(me_.time().now() + me_.settings().stall_limit, [this, seen, partial] {
    if (partial && partial_ && seen == progress_) {
      {
        const std::lock_guard lock(mutex_);
        if (connection_) connection_->close();
      }
      lose_soon(error(errc::protocol_error, "the peer began a frame and stopped sending",
                      execution::maybe_executed, origin::transport));
      return;
    }
    watch_stalls();
  });
}

template <class T>
expected<void> live_link<T>::handle(frame&& f) {
  switch (f.header.kind) {
  case frame_kind::request:
    return handle_request(std::move(f));
  case frame_kind::reply:
  case frame_kind::failure:
  case frame_kind::cancel:
  case frame_kind::control:
    if (on_worker_thread_) {
      handle_here(std::move(f));
    } else {
      me_.hand_over(ref<live_link>(this), std::move(f));
    }
    return {};
  case frame_kind::rref:
  case frame_kind::autograd: {
    incoming_message m(std::move(f), bounds());
    if (auto ok = m.check(); !ok) return ok;
    expected<void> result = tl::unexpected(
        error(errc::protocol_error, "a frame of a service that this worker does not have",
              execution::maybe_executed, origin::transport));
    me_.each_service([&](service& s) {
      if (s.owns(m.header().kind)) result = s.frame(*this, m);
    });
    return result;
  }
  case frame_kind::hello:
  case frame_kind::welcome:
  case frame_kind::refuse:
    break;
  }
  return tl::unexpected(error(errc::protocol_error, "a handshake frame after the handshake",
                              execution::maybe_executed, origin::transport));
}

template <class T>
expected<void> live_link<T>::handle_request(frame&& f) {
  const ref<invocation> call(
      new invocation(me_, ref<live_link>(this), std::move(f), bounds(), rank_, name()));
  me_.served.fetch_add(1, std::memory_order_relaxed);
  if (auto ok = call->in.check(); !ok) return ok;
  const frame_header& header = call->in.header();
  if (header.deadline_us != 0) {
    call->deadline = me_.time().now() + std::chrono::microseconds(header.deadline_us);
  }
  call->trace = header.trace;
  call->span = header.span;
  expected<void> arrived;
  me_.each_service([&](service& s) {
    if (arrived) arrived = s.arrive(*this, call->in);
  });
  if (!arrived) return arrived;
  if (auto* setup = call->in.record().find<scope_setup>()) {
    call->autograd = std::move(setup->autograd);
    call->mode = std::move(setup->mode);
    if (setup->refused) {
      call->failure = std::move(setup->refused);
      serving<T>::finish(*call);
      return {};
    }
  }
  const auto found = me_.functions().find(header.function, header.signature);
  if (!found) {
    call->failure = found.error();
    serving<T>::finish(*call);
    return {};
  }
  call->function = *found;
  auto* target = call->in.record().find<call_target>();
  if (target && target->wait && call->function->style != run_style::coroutine) {
    // The object is not there yet: even a light function then runs on the pool, when it is.
    auto wait = std::exchange(target->wait, nullptr);
    wait([self = ref<live_link>(this), call] { self->run_plain(call); });
    return {};
  }
  switch (call->function->style) {
  case run_style::light:
    serving<T>::run(*call);
    break;
  case run_style::pool:
    run_plain(call);
    break;
  case run_style::coroutine:
    if (on_worker_thread_) {
      start_coroutine(call);
    } else {
      me_.hand_over(call);
    }
    break;
  }
  return {};
}

template <class T>
void live_link<T>::run_plain(ref<invocation> call) {
  asio::post(me_.pool(), [call = std::move(call)] { serving<T>::run(*call); });
}

template <class T>
void live_link<T>::start_coroutine(ref<invocation> call) {
  call->next = serving_;
  if (serving_) serving_->previous = call.get();
  serving_ = call.get();
  me_.serve(std::move(call));
}

template <class T>
void live_link<T>::coroutine_ended(invocation& done) {
  if (done.previous) {
    done.previous->next = done.next;
  } else if (serving_ == &done) {
    serving_ = done.next;
  }
  if (done.next) done.next->previous = done.previous;
  done.previous = done.next = nullptr;
}

template <class T>
void live_link<T>::cancel_served(std::uint64_t id) {
  for (invocation* call = serving_; call; call = call->next) {
    if (call->call() == id) {
      if (call->runner) call->runner->cancel();
      return;
    }
  }
}

template <class T>
void live_link<T>::handle_here(frame&& f) {
  incoming_message m(std::move(f), bounds());
  const frame_kind kind = m.header().kind;
  if (auto ok = m.check(); !ok) {
    lose_soon(ok.error());
    return;
  }
  if (kind == frame_kind::cancel) {
    cancel_served(m.header().call);
  } else if (kind == frame_kind::control) {
    me_.control(*this, m);
  } else {
    reply_arrived(std::move(m));
  }
}

template <class T>
void live_link<T>::reply_arrived(incoming_message&& m) {
  expected<void> arrived;
  me_.each_service([&](service& s) {
    if (arrived) arrived = s.arrive(*this, m);
  });
  if (!arrived) {
    lose_soon(arrived.error());
    return;
  }
  const std::uint64_t call = m.header().call;
  call_result result;
  if (m.header().kind == frame_kind::failure) {
    try {
      reader r = m.payload();
      result.failure = codec<error>::decode(r);
      r.finish();
      if (!result.failure) r.fail("a failure that says success");
    } catch (const rpc_error& e) {
      result.failure = e.error();
    }
  } else {
    result.reply = make_ref<held_reply>(std::move(m));
  }
  if (!slots_.complete(call, std::move(result))) {
    me_.late_replies.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace detail
}  // namespace weft
