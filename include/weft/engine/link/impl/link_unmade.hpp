// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link.hpp: requests whose object is still being made.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/link/impl/link_serve.hpp>

#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace weft::engine {

inline link::~link() {
  if (waiting_alarm_.listed()) me_.deadlines().remove(waiting_alarm_);
}

inline void link::wait_for_object(intrusive_ptr<served_request> call) {
  const intrusive_ptr<unmade_object> object = call->target->unmade;
  const auto waiter = make_intrusive<waiting_call>(intrusive_ptr<link>(this), call);
  {
    std::unique_lock lock(waiting_mutex_);
    if (waiting_.closed() || waiting_.full()) {
      const bool lost = waiting_.closed();
      lock.unlock();
      call->failure =
          lost ? error(errc::cancelled, "the caller's link is lost", call_progress::not_executed)
               : error(errc::resource_exhausted,
                       std::to_string(most_waiting_calls) +
                           " calls of this peer wait for objects that are being made",
                       call_progress::not_executed, origin::remote_runtime);
      fail(call);
      return;
    }
    waiter->number_ = waiting_.add(call->call(), call->deadline, waiter);
    watch_waiting(lock);
  }
  if (!object->enter(waiter)) {
    waiter->object_there();
    return;
  }
  // Its wait may have ended before it was kept: then nobody else takes it out.
  const auto ended = [&] {
    const std::lock_guard lock(waiting_mutex_);
    return !waiting_.waits(waiter->number_);
  };
  if (ended()) object->leave(*waiter);
  // Between two waits nobody found it in either.
  if (!call->given_up.load(std::memory_order_relaxed)) return;
  if (take_waiting(waiter->number_)) give_up_waiting(waiter, caller_gave_up());
}

/// Whether its caller's giving up ended a wait for its object.
inline bool link::gives_up_waiting(std::uint64_t id) {
  intrusive_ptr<waiting_call> waiter;
  {
    const std::lock_guard lock(waiting_mutex_);
    waiter = waiting_.take_call(id);
  }
  if (waiter) give_up_waiting(waiter, caller_gave_up());
  return waiter != nullptr;
}

inline error link::caller_gave_up() {
  return {errc::cancelled, "the caller gave up before the object was made",
          call_progress::not_executed, origin::remote_runtime};
}

inline void link::object_there(std::uint64_t number, function_style style) noexcept {
  if (style != function_style::coroutine) return begin_waiting(number);
  // It waits until its coroutine begins, so that whoever gives up meanwhile finds it.
  or_die([&] { me_.requests().push_in_turn(intrusive_ptr<request_source>(this), number); });
}

inline auto link::take_waiting(std::uint64_t number) noexcept -> intrusive_ptr<waiting_call> {
  const std::lock_guard lock(waiting_mutex_);
  return waiting_.take(number);
}

inline void link::begin_waiting(std::uint64_t number) noexcept {
  const intrusive_ptr<waiting_call> waiter = take_waiting(number);
  if (!waiter) return;
  call_target& target = waiter->target();
  try {
    std::exchange(target.unmade, nullptr)->look(target);
  } catch (...) {  // it is of another type
    target.failure = caught_or_die(me_, call_progress::not_executed);
  }
  served_request& call = *waiter->call();
  call.forwarded = forward_target(target.object.get(), target.type) != nullptr;
  or_die([&] {
    if (target.failure) {
      fail_with_object(waiter->call(), target);
    } else if (target.unmade) {
      // What it waited for is a reference to something that is being made here as well.
      wait_for_object(waiter->call());
    } else if (call.function->style == function_style::coroutine) {
      start_coroutine(waiter->call());
    } else if (call.forwarded) {
      me_.requests().push(waiter->call());
    } else {
      submit_plain(waiter->call());  // immediate functions too: this may be any thread
    }
  });
}

/// The function does not run: why there is no object is the call's failure, in the same words.
inline void link::fail_with_object(const intrusive_ptr<served_request>& call,
                                   const call_target& target) noexcept {
  call->failure = target.failure.with([](error_detail& d) { d.ran = call_progress::not_executed; });
  fail(call);
}

inline void link::give_up_waiting(const intrusive_ptr<waiting_call>& waiter,
                                  const error& why) noexcept {
  call_target& target = waiter->target();
  std::exchange(target.unmade, nullptr)->leave(*waiter);
  waiter->call()->failure = why;
  fail(waiter->call());
}

inline void link::close_waiting() noexcept {
  const std::vector<intrusive_ptr<waiting_call>> waiters = or_die([&] {
    const std::lock_guard lock(waiting_mutex_);
    return waiting_.close();
  });
  // The caller hears nothing; users of a result that was to stay here do.
  const error why(errc::cancelled, "the caller's link was lost before the object was made",
                  call_progress::not_executed, origin::remote_runtime);
  for (const auto& w : waiters) give_up_waiting(w, why);
}

inline void link::drop_waiting() {
  std::deque<intrusive_ptr<served_request>> throttled;  // both die without a lock
  {
    const std::lock_guard lock(serving_mutex_);
    throttled.swap(throttled_);
  }
  std::vector<intrusive_ptr<waiting_call>> waiters;
  const std::lock_guard lock(waiting_mutex_);
  waiters = waiting_.close();
}

/// Under the lock: sees to it that the alarm rings at the earliest deadline, or before.
inline void link::watch_waiting(const std::unique_lock<std::mutex>&) noexcept {
  const auto next = waiting_.next_deadline();
  if (!next || (waiting_watched_ && *waiting_watched_ <= *next)) return;
  waiting_watched_ = next;
  if (std::exchange(watch_posted_, true)) return;  // it looks when it comes
  post_or_die(me_.context(), [self = intrusive_ptr<link>(this)] {
    std::optional<time_point> when;
    {
      const std::lock_guard lock(self->waiting_mutex_);
      self->watch_posted_ = false;
      when = self->waiting_watched_;
    }
    if (!when) return;
    self->me_.deadlines().remove(self->waiting_alarm_);
    self->me_.deadlines().add(self->waiting_alarm_, *when);
  });
}

inline void link::waiting_alarm::expired() {
  const intrusive_ptr<link> self(&link_);
  std::vector<intrusive_ptr<waiting_call>> late;
  {
    std::unique_lock lock(link_.waiting_mutex_);
    late = link_.waiting_.take_expired(link_.me_.time().now());
    link_.waiting_watched_.reset();
    link_.watch_waiting(lock);
  }
  for (const auto& w : late) {
    link_.give_up_waiting(w,
                          error(errc::timed_out, "the deadline passed before the object was made",
                                call_progress::not_executed, origin::remote_runtime));
  }
}

}  // namespace weft::engine
