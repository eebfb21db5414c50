// SPDX-License-Identifier: BSL-1.0
// Bodies of ../request_queue.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/resume_users.hpp>
#include <weft/engine/helper/helper.hpp>
#include <weft/engine/serving/impl/object_wait.hpp>
#include <weft/engine/serving/link_host.hpp>
#include <weft/engine/serving/request_source.hpp>
#include <weft/rpc/detail/caught.hpp>

#include <utility>

namespace weft::engine {

inline request_queue::~request_queue() { keep_idle(0); }

inline void request_queue::keep_idle(std::size_t most) noexcept {
  most_idle_ = most;
  while (idle_.size() > most) {
    const intrusive_ptr<coroutine> surplus = std::move(idle_.back());
    idle_.pop_back();
    surplus->drop();
  }
}

inline void request_queue::drop() noexcept {
  keep_idle(0);
  std::vector<entry> unserved;  // dies without the lock
  {
    const std::lock_guard lock(mutex_);
    unserved.swap(inbox_);
  }
  draining_.clear();
  drained_ = 0;
}

inline void request_queue::push(intrusive_ptr<request_source> from, frame f,
                                error allocation_error) {
  push({.from = std::move(from),
        .f = std::move(f),
        .allocation_error = std::move(allocation_error)});
}
inline void request_queue::push(intrusive_ptr<served_request> call) {
  push({.call = std::move(call)});
}
inline void request_queue::push(intrusive_ptr<object_wait> wait, bool there) {
  push({.wait = std::move(wait), .there = there});
}
inline void request_queue::push_waits(intrusive_ptr<request_source> from) {
  push({.from = std::move(from), .waits = true});
}
inline void request_queue::push(entry&& what) {
  const bool drains = me_.on_thread() && drains_soon_;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(what));
    wake = !waking_ && !drains;
    waking_ = waking_ || wake;
  }
  if (drains) undrained_ = true;
  if (wake) wake_up();
}

inline request_queue::reader::reader(request_queue& of) noexcept
    : of_(of), here_(of.me_.on_thread()), outer_(here_ && std::exchange(of.drains_soon_, true)) {}
inline request_queue::reader::~reader() {
  if (!here_ || outer_) return;
  of_.drains_soon_ = false;
  if (std::exchange(of_.undrained_, false)) of_.wake_if_any();
}

inline void request_queue::wake_if_any() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (inbox_.empty() || std::exchange(waking_, true)) return;
  }
  wake_up();
}

inline void request_queue::wake_up() noexcept {
  wake_(me_.context(), [this] { or_die([this] { woken(); }); });
}

inline void request_queue::woken() {
  try {
    me_.loop_is_run_by().bind_unless_over(me_.name());
  } catch (...) {  // out of a second thread's run(); the work is the first one's
    wake_up();
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    waking_ = false;
  }
  drain();
}

inline void request_queue::drain() {
  undrained_ = false;
  helper::batch batch(me_.helper());
  std::size_t since_flush = 0;
  // User code may run the loop again from within: then that goes on behind the entry that is being
  // handled here, in order.
  for (bool last = false;;) {
    if (drained_ == draining_.size()) {
      draining_.clear();
      drained_ = 0;
      if (std::exchange(last, true)) break;
      const std::lock_guard lock(mutex_);
      draining_.swap(inbox_);
      continue;
    }
    entry e = std::move(draining_[drained_++]);
    if (e.wait) {
      e.there ? e.wait->begin() : e.wait->watch();
    } else if (e.waits) {
      e.from->watch_waits();
    } else if (e.call) {
      request_source& from = e.call->from();
      from.start_coroutine(std::move(e.call));
    } else {
      try {
        e.from->handle_here(std::move(e.f), std::move(e.allocation_error));
      } catch (...) {  // of a service that refuses what came
        e.from->mark_down(caught_or_die(me_, call_progress::maybe_executed));
      }
    }
    if (++since_flush == 32) {
      batch.flush();
      since_flush = 0;
    }
  }
}

inline void request_queue::serve(const intrusive_ptr<served_request>& call) {
  const intrusive_ptr<coroutine> by = idle_or_new();
  // Nobody waits for its outcome here when only the reply is wanted. (Of a forwarded one:
  // `end_forward`.)
  if (!call->is_post() && !call->forwarded) call->done();
  resume_users(me_.context(), [&] { by->give(call); });
}

inline auto request_queue::idle_or_new() -> intrusive_ptr<coroutine> {
  while (!idle_.empty()) {
    intrusive_ptr<coroutine> idle = std::move(idle_.back());
    idle_.pop_back();
    if (idle->reusable()) return idle;
    idle->drop();
  }
  auto served = [this](const intrusive_ptr<coroutine>& by, served_request& ended) {
    ended.from().forget(ended);
    if (idle_.size() < most_idle_) {
      idle_.push_back(by);
    } else {
      by->retire();
    }
  };
  auto fresh = make_intrusive<coroutine>(me_.context(), std::move(served));
  fresh->begin();
  return fresh;
}

}  // namespace weft::engine
