// SPDX-License-Identifier: BSL-1.0
// The way of frames to the worker's thread, and of requests to the coroutines that serve them.
//
//   a thread that reads ─ push ─► inbox ─ drain, on the worker's thread ─┬─► link::handle_here
//                                                                        └─► link::start_coroutine
//   link ── serve ─► a coroutine that waits for a request, or a new one ─► the function, its reply
//
// One inbox keeps the order in which a link's frames came, whatever they are.
#pragma once

#include <weft/core/detail/preallocated_post.hpp>
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/serving/object_wait.hpp>
#include <weft/engine/serving/request_coroutine.hpp>
#include <weft/engine/serving/served_request.hpp>
#include <weft/engine/serving/serving.hpp>
#include <weft/wire/frame.hpp>

#include <asio/io_context.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::engine {

class request_queue {
 public:
  explicit request_queue(link_host& me) : me_(me) {}
  request_queue(const request_queue&) = delete;
  request_queue& operator=(const request_queue&) = delete;
  ~request_queue();

  /// A frame that `from` has read. Any thread; wakes the worker's once a batch.
  void push(intrusive_ptr<request_source> from, frame f, error allocation_error);
  /// A request of a coroutine function, or one that goes on. Any thread.
  void push(intrusive_ptr<served_request> call);
  /// One that waits for its object: to begin in turn, as that is `there`, or to leave the
  /// deadlines. Any thread.
  void push(intrusive_ptr<object_wait> wait, bool there);
  /// That `from` has read some that wait for their objects. Any thread.
  void push_waits(intrusive_ptr<request_source> from);
  /// Handles what was pushed so far. Worker's thread.
  void drain();
  /// While one lives, the worker's thread pushes without waking itself, and drains soon after.
  class reader {
   public:
    explicit reader(request_queue& of) noexcept;
    reader(const reader&) = delete;
    reader& operator=(const reader&) = delete;
    ~reader();
    /// Whether it is the worker's thread.
    [[nodiscard]] bool here() const noexcept { return here_; }

   private:
    request_queue& of_;
    const bool here_, outer_;
  };

  /// How much waits for the worker's thread.
  [[nodiscard]] std::size_t size() {
    const std::lock_guard lock(mutex_);
    return inbox_.size();
  }

  /// Gives a request that has begun to a coroutine, which runs its function at once. Worker's
  /// thread.
  void serve(const intrusive_ptr<served_request>& call);

  /// How many coroutines may wait for requests; with 0 each request gets a fresh one. Worker's
  /// thread. For measurements: nothing else depends on it.
  void keep_idle(std::size_t most) noexcept;

  /// Forgets all that is in it, unserved. Worker's thread, or when that runs no more.
  void drop() noexcept;

 private:
  using coroutine = request_coroutine<serving>;

  struct entry {
    intrusive_ptr<request_source> from{};  // of a frame
    frame f{};
    error allocation_error{};
    intrusive_ptr<served_request> call{};
    intrusive_ptr<object_wait> wait{};
    bool waits = false;  // of `from`
    bool there = false;  // what `wait` waits for
  };
  void push(entry&& what);
  void wake_up() noexcept;
  void wake_if_any() noexcept;
  void woken();
  [[nodiscard]] intrusive_ptr<coroutine> idle_or_new();

  link_host& me_;
  std::mutex mutex_;  // guards the next two
  std::vector<entry> inbox_;
  bool waking_ = false;
  preallocated_post wake_;
  // The worker's thread:
  bool drains_soon_ = false;
  bool undrained_ = false;  // something was pushed so, and is not drained
  std::vector<entry> draining_;
  std::size_t drained_ = 0;  // of draining_
  std::size_t most_idle_ = 256;
  std::vector<intrusive_ptr<coroutine>> idle_;  // wait for requests
};

}  // namespace weft::engine
