// SPDX-License-Identifier: BSL-1.0
// Bodies of ../object_wait.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/engine/serving/link_host.hpp>
#include <weft/engine/serving/object_wait.hpp>
#include <weft/engine/serving/request_source.hpp>

#include <optional>
#include <utility>

namespace weft::engine {

inline object_wait::object_wait(link_host& me, intrusive_ptr<served_request> call,
                                std::uint64_t number)
    : me_(me),
      number_(number),
      of_coroutine_(call->function->style == function_style::coroutine),
      call_(std::move(call)) {}

inline object_wait::~object_wait() {
  leave_deadlines();
  if (call_) call_->runner = nullptr;  // it was dropped
}

inline void object_wait::object_there() noexcept {
  or_die([this] {
    const intrusive_ptr<object_wait> self(this);
    // It waits until its coroutine begins, so that whoever gives up meanwhile finds it.
    if (of_coroutine_) return me_.requests().push(self, true);
    const intrusive_ptr<served_request> call = take();
    if (!call) return;
    if (watched_) {
      me_.requests().push(self, false);
    } else {
      call->from().unwatched(number_);
    }
    call->from().object_found(call);
  });
}

inline bool object_wait::ended() {
  const std::lock_guard lock(mutex_);
  return call_ == nullptr;
}

inline void object_wait::watch() {
  std::optional<time_point> deadline;
  {
    const std::lock_guard lock(mutex_);
    if (!call_) return leave_deadlines();
    call_->runner = this;
    watched_ = true;
    deadline = call_->deadline;
    if (!call_->given_up()) {
      if (deadline) me_.deadlines().add(*this, *deadline);
      return;
    }
  }
  cancel();
}

inline void object_wait::begin() {
  leave_deadlines();
  if (const intrusive_ptr<served_request> call = take()) call->from().object_found(call);
}

inline void object_wait::cancel() {
  const intrusive_ptr<object_wait> self(this);
  leave_deadlines();
  const intrusive_ptr<served_request> call = take();
  if (!call) return;
  std::exchange(call->target->unmade, nullptr)->leave(*this);
  call->failure = call->given_up()
                      ? error(errc::cancelled, "the caller gave up before the object was made",
                              call_progress::not_executed, origin::remote_runtime)
                      : error(errc::timed_out, "the deadline passed before the object was made",
                              call_progress::not_executed, origin::remote_runtime);
  call->from().object_missed(call);
}

inline intrusive_ptr<served_request> object_wait::take() noexcept {
  const std::lock_guard lock(mutex_);
  if (call_) call_->runner = nullptr;
  return std::exchange(call_, nullptr);
}

inline void object_wait::leave_deadlines() noexcept {
  if (listed()) me_.deadlines().remove(*this);
}

}  // namespace weft::engine
