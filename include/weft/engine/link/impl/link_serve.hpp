// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link.hpp: requests, from their arrival to their end.
//
//   handle_request ─► immediate: here ─┐
//                  ─► plain: pool ─┼─ begin? ─► run or serve ─► reply, forget
//                  ─► coroutine ───┘    │                (one that goes on elsewhere: forward)
//                                       └─ no: throttled, until replies are written
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/detail/resume_users.hpp>
#include <weft/engine/link/impl/link_send.hpp>
#include <weft/engine/serving/serving.hpp>
#include <weft/rref/detail/forwarding_address.hpp>
#include <weft/wire/detail/broken_protocol.hpp>

#include <algorithm>

namespace weft::engine {

/// The services whose section the message has hear of it.
inline expected<void> link::tell_readers(incoming_message& m) {
  expected<void> out;
  const std::uint32_t there = m.section_bits();
  if (there == 0) return out;
  me_.each_service([&](service& s) {
    if (out && (s.reads() & there) != 0) out = s.arrive(*this, m);
  });
  return out;
}

inline expected<void> link::handle_request(arrived_frame&& came) {
  me_.counts.served.fetch_add(1, std::memory_order_relaxed);
  const frame_header of = came.f.header;
  const std::uint64_t cost = request_cost(came.bytes);
  const function_entry* const known = me_.functions().known(of.function, of.signature);
  const intrusive_ptr<served_request> call(
      new served_request(me_, intrusive_ptr<request_source>(this), std::move(came.f), bounds(),
                         came.allocation_error, rank_, name()));
  if (call->is_post()) requests.arrived.fetch_add(1);
  if (std::binary_search(cancelled_.begin(), cancelled_.end(), of.call)) call->give_up();
  if (auto ok = call->in.check(); !ok) return ok;
  const frame_header& header = call->in.header();
  if (const auto left = time_left(header.deadline)) call->deadline = arrived_at_ + *left;
  call->trace = header.trace;
  call->span = header.span;
  // Services count what it says, so they hear of it before it can be refused alone.
  if (auto arrived = tell_readers(call->in); !arrived) return arrived;
  if (auto* setup = call->in.record().find<scope_setup>()) {
    call->autograd = std::move(setup->autograd);
    call->mode = std::move(setup->mode);
    call->failure = std::move(setup->refused);
  }
  call->function = known;
  if (!known) call->failure = me_.functions().find(of.function, of.signature).error();
  if (call->in.allocation_error()) call->failure = call->in.allocation_error();
  call->target = call->in.record().find<call_target>();
  if (const call_target* const target = call->target) {
    call->forwarded = forward_target(target->object.get(), target->type) != nullptr;
  }
  const bool waits = bulk_in_.must_wait(*call);
  {
    std::unique_lock lock(serving_mutex_);
    if (!granted_.arrived(cost)) {
      return broken_protocol("more requests than the window holds");
    }
    call->cost = cost;
    served_.add(*call);
    call->served.store(true, std::memory_order_relaxed);
    if (!waits && begins_at_once(*call)) {
      call->begun = true;
      leave_window(*call, lock);
    }
  }
  const bool has_bulk = call->in.whole().on_bulk();
  const bool awaits = call->in.awaits_blobs();
  if (waits) {
    if (!call->target) return await_bulk({of, call});
    held_request* const place = bulk_in_.line_up(call);
    if (awaits) return await_bulk({of, place});
  } else {
    dispatch(call);
  }
  return has_bulk ? await_bulk({of, {}}) : expected<void>();
}

/// Under the serving lock: whether what this thread does next with a request is to begin it, so
/// that its window needs no second look.
inline bool link::begins_at_once(const served_request& call) const noexcept {
  if (!throttled_.empty() || !may_begin() || call.forwarded) return false;
  if (call.failure) return true;
  if (call.target && call.target->unmade) return false;
  return call.function->style == function_style::immediate;
}

/// Under the serving lock: a request leaves its window, and if credit is due by that, it is given.
/// Unlocks.
inline void link::leave_window(served_request& call, std::unique_lock<std::mutex>& lock) noexcept {
  granted_.begun(std::exchange(call.cost, 0));
  bulk_granted_.begun(std::exchange(call.bulk_cost, 0));
  const bool due = granted_.due() || bulk_granted_.due();
  lock.unlock();
  if (due) give_credit();
}

inline void link::dispatch(const intrusive_ptr<served_request>& call) {
  if (call->failure) return fail(call);
  const call_target* const target = call->target;
  if (target && target->unmade) return wait_for_object(call);
  if (target && target->failure) return fail_with_object(call, *target);
  if (call->forwarded) return me_.requests().push(call);
  switch (call->function->style) {
  case function_style::immediate:
    if (begin(call, order::of_arrival)) serve_here(call);
    break;
  case function_style::plain:
    submit_plain(call);
    break;
  case function_style::coroutine:
    me_.requests().push(call);
    break;
  }
}

inline void link::submit_plain(intrusive_ptr<served_request> call) noexcept {
  post_or_die(me_.compute_pool(), [self = intrusive_ptr<link>(this), call = std::move(call)] {
    if (!self->begin(call, order::none)) return;
    const running_functions::item here(self->me_.running(), call->function->name, call->who.name(),
                                       self->me_.time().now());
    self->serve_here(call);
  });
}

/// On whatever thread, a request that has begun or that cannot.
inline void link::serve_here(const intrusive_ptr<served_request>& call) noexcept {
  if (call->cost > 0) {  // its answer gives its credit back, if there is one
    std::unique_lock lock(serving_mutex_);
    leave_window(*call, lock);
  }
  serving::evaluate(*call);
  forget(*call);
}

/// Answers a request that cannot run, when answers are taken: they are bounded as others are.
inline void link::fail(const intrusive_ptr<served_request>& call) noexcept {
  if (begin(call, order::none)) serve_here(call);
}

/// Worker's thread.
inline void link::start_coroutine(intrusive_ptr<served_request> call) {
  if (lost_) return forget(*call);
  if (begin(call, order::of_arrival)) serve(call);
}

inline void link::serve(const intrusive_ptr<served_request>& call) {
  if (serving::too_late(*call) || !call->may_run()) return serve_here(call);
  // It may wait for long, so it leaves the window; what its arguments take is counted on.
  const frame_header& header = call->in.header();
  const std::uint64_t held = request_cost(header.payload_bytes + header.table_bytes);
  if (!call->held.take(budget_, held)) {
    call->failure = over_budget(held, "of arguments");
    return serve_here(call);
  }
  if (call->deadline) me_.deadlines().add(*call, *call->deadline);
  me_.requests().serve(call);
}

/// Whether the request may run now; else it is kept, and dispatched again when it may.
inline bool link::begin(const intrusive_ptr<served_request>& call, order how) noexcept {
  if (call->begun) return true;
  std::unique_lock lock(serving_mutex_);
  const bool behind = how == order::of_arrival && !throttled_.empty();
  if (!throttling_off_ && (behind || !may_begin())) {
    or_die(
        [&] { how == order::released ? throttled_.push_front(call) : throttled_.push_back(call); });
    return false;
  }
  leave_window(*call, lock);
  return true;
}

/// A request that goes on has left its caller's window, or two workers that go on by way of each
/// other would wait for each other's. So this bounds those that wait. Throws rpc_error.
inline void link::begin_forward(served_request& call) {
  if (forwards_pending_.load(std::memory_order_relaxed) >= most_waiting_calls) {
    throw rpc_error(
        errc::resource_exhausted,
        std::to_string(most_waiting_calls) +
            " calls of this peer already wait to be forwarded to objects of other workers",
        call_progress::not_executed);
  }
  forwards_pending_.fetch_add(1, std::memory_order_relaxed);
  call.forward_pending = true;
}

/// It is queued towards its object, or never will be.
inline void link::end_forward(served_request& call) noexcept {
  if (std::exchange(call.forward_pending, false))
    forwards_pending_.fetch_sub(1, std::memory_order_relaxed);
  if (!call.is_post()) call.done();
}

inline void link::release_soon() noexcept {
  if (releasing_.exchange(true)) return;
  post_or_die(me_.context(), [self = intrusive_ptr<link>(this)] {
    self->releasing_.store(false);
    self->release_throttled();
  });
}

/// Worker's thread.
inline void link::release_throttled() {
  for (std::size_t budget = 64; budget > 0; --budget) {
    intrusive_ptr<served_request> next;
    {
      const std::lock_guard lock(serving_mutex_);
      if (throttled_.empty() || !may_begin()) return;
      next = std::move(throttled_.front());
      throttled_.pop_front();
    }
    if (next->failure) {
      if (!begin(next, order::released)) return;
      serve_here(next);
      continue;
    }
    if (next->style() == function_style::plain) {
      submit_plain(std::move(next));  // which asks again: those behind do not wait for the pool
      continue;
    }
    if (next->style() == function_style::immediate) {
      if (!begin(next, order::released)) return;
      serve_here(next);
      continue;
    }
    if (lost_) {
      forget(*next);
    } else if (begin(next, order::released)) {
      serve(next);
    } else {
      return;
    }
  }
  release_soon();
}

inline void link::forget(served_request& call) noexcept {
  if (call.listed()) me_.deadlines().remove(call);  // only of a coroutine, so on its thread
  if (!call.served.load(std::memory_order_acquire) && call.cost == 0) return;
  std::unique_lock lock(serving_mutex_);
  served_.remove(call);
  call.served.store(false, std::memory_order_release);
  if (call.cost > 0) leave_window(call, lock);
}

/// Under both locks: its answer is queued, so it cannot be given up any more.
inline void link::no_longer_served(std::uint64_t id) noexcept {
  served_request* const call = served_.find(id);
  if (!call) return;
  served_.remove(*call);
  call->served.store(false, std::memory_order_release);  // the last that is done with it here
}

inline void link::cancel_served(std::uint64_t id) {
  intrusive_ptr<served_request> call;
  {
    const std::lock_guard lock(serving_mutex_);
    call = intrusive_ptr<served_request>::if_alive(served_.find(id));
  }
  if (call) call->cancel();
}

inline void link::drop_waiting() {
  drop_bulk();
  std::deque<intrusive_ptr<served_request>> throttled;  // both die without a lock
  std::map<std::uint64_t, intrusive_ptr<object_wait>> unwatched;
  {
    const std::lock_guard lock(waits_mutex_);
    unwatched.swap(unwatched_);
  }
  const std::lock_guard lock(serving_mutex_);
  throttled.swap(throttled_);
}

/// Of a lost link, which needs to find none of them any more.
inline void link::cancel_all_served() noexcept {
  for (intrusive_ptr<served_request> throttled;;) {
    throttled = nullptr;  // dies without the lock
    const std::lock_guard lock(serving_mutex_);
    if (throttled_.empty()) break;
    throttled = std::move(throttled_.front());
    throttled_.pop_front();
  }
  for (std::size_t place = 0;;) {
    intrusive_ptr<served_request> call;
    {
      const std::lock_guard lock(serving_mutex_);
      served_request* const next = served_.take(place);
      if (!next) return;
      call = intrusive_ptr<served_request>::if_alive(next);
    }
    if (call) call->cancel();
  }
}

}  // namespace weft::engine
