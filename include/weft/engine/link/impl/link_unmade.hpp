// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link.hpp: requests whose object is still being made.
#pragma once

#include <weft/engine/link/impl/link_serve.hpp>
#include <weft/engine/serving/object_wait.hpp>

#include <string>
#include <utility>

namespace weft::engine {

/// Any thread.
inline void link::wait_for_object(const intrusive_ptr<served_request>& call) {
  if (for_objects_.fetch_add(1, std::memory_order_relaxed) >= most_waiting_calls) {
    call->failure = error(errc::resource_exhausted,
                          std::to_string(most_waiting_calls) +
                              " calls of this peer wait for objects that are being made",
                          call_progress::not_executed, origin::remote_runtime);
    return object_missed(call);
  }
  const intrusive_ptr<unmade_object> object = call->target->unmade;
  const std::uint64_t number = ++last_wait_;
  const auto wait = make_intrusive<object_wait>(me_, call, number);
  if (me_.on_thread()) {
    wait->watch();
  } else {
    bool first = false;
    {
      const std::lock_guard lock(waits_mutex_);
      first = !std::exchange(watch_asked_, true);
      unwatched_.emplace(number, wait);
    }
    if (first) me_.requests().push_waits(intrusive_ptr<request_source>(this));
  }
  if (!object->enter(wait)) return wait->object_there();
  if (wait->ended()) object->leave(*wait);  // before it was kept: nobody else takes it out
}

inline void link::watch_waits() {
  std::map<std::uint64_t, intrusive_ptr<object_wait>> read;
  {
    const std::lock_guard lock(waits_mutex_);
    watch_asked_ = false;
    read.swap(unwatched_);
  }
  for (const auto& [number, wait] : read) wait->watch();
}

inline void link::unwatched(std::uint64_t number) noexcept {
  const std::lock_guard lock(waits_mutex_);
  unwatched_.erase(number);  // not the last that holds it
}

inline void link::object_missed(const intrusive_ptr<served_request>& call) noexcept {
  for_objects_.fetch_sub(1, std::memory_order_relaxed);
  fail(call);
}

inline void link::object_found(const intrusive_ptr<served_request>& call) noexcept {
  for_objects_.fetch_sub(1, std::memory_order_relaxed);
  call_target& target = *call->target;
  try {
    std::exchange(target.unmade, nullptr)->look(target);
  } catch (...) {  // it is of another type
    target.failure = caught_or_die(me_, call_progress::not_executed);
  }
  call->forwarded = forward_target(target.object.get(), target.type) != nullptr;
  or_die([&] {
    if (target.failure) {
      fail_with_object(call, target);
    } else if (target.unmade) {
      // What it waited for is a reference to something that is being made here as well.
      wait_for_object(call);
    } else if (call->function->style == function_style::coroutine) {
      start_coroutine(call);
    } else if (call->forwarded) {
      me_.requests().push(call);
    } else {
      submit_plain(call);  // immediate functions too: this may be any thread
    }
  });
}

/// The function does not run: why there is no object is the call's failure, in the same words.
inline void link::fail_with_object(const intrusive_ptr<served_request>& call,
                                   const call_target& target) noexcept {
  call->failure = target.failure.with([](error_detail& d) { d.ran = call_progress::not_executed; });
  fail(call);
}

}  // namespace weft::engine
