// SPDX-License-Identifier: BSL-1.0
// What a thread other than the worker's sends while it handles what one read has brought.
#pragma once

#include <weft/config.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/worker.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace weft::engine {

inline void batch_ends(weft::worker& here) noexcept {
  here.each_service([](service& s) { s.batch_ends(); });
}

/// Delays the writes of a worker's links to its end, so that they go out together. Not nested, and
/// never held across co_await.
class write_batch {
 public:
  explicit write_batch(weft::worker& of) noexcept
      : worker_(of), outer_(std::exchange(current, this)) {}
  write_batch(const write_batch&) = delete;
  write_batch& operator=(const write_batch&) = delete;
  ~write_batch() {
    current = outer_;
    flush();
  }
  /// The one on this thread, if it is of that worker: another one may be destroyed in a handler.
  [[nodiscard]] static write_batch* of(const weft::worker& w) noexcept {
    return current && &current->worker_ == &w ? current : nullptr;
  }
  void add(weft::link& l) {
    const auto same = [&](const intrusive_ptr<weft::link>& one) { return one.get() == &l; };
    if (std::none_of(dirty_.begin(), dirty_.end(), same)) dirty_.emplace_back(&l);
  }
  /// Services are told when it ends.
  void hold() noexcept { held_ = true; }
  /// Writes now what was delayed so far.
  void flush() {
    if (std::exchange(held_, false)) batch_ends(worker_);
    for (const intrusive_ptr<weft::link>& l : dirty_) l->write_now();
    dirty_.clear();
  }

  WEFT_PROCESS_WIDE static thread_local write_batch* current;

 private:
  weft::worker& worker_;
  write_batch* const outer_;
  bool held_ = false;
  std::vector<intrusive_ptr<weft::link>> dirty_;
};
inline thread_local write_batch* write_batch::current = nullptr;

}  // namespace weft::engine
