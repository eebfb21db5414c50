// SPDX-License-Identifier: BSL-1.0
// A request while it is served, from its arrival to its reply.
//
//   link ─► served_request ─► thunk<f>: decode, run, encode (or keep) ─► serving: reply or failure
#pragma once

#include <weft/core/time.hpp>
#include <weft/core/timer_list.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/serving/cancellable.hpp>
#include <weft/engine/serving/request_source.hpp>
#include <weft/memory/detail/memory_budget.hpp>
#include <weft/rpc/call_target.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/table.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace weft::engine {

/// What the engine knows of an invocation beside what its function sees.
class served_request final : public invocation, public deadline_entry {
 public:
  /// Leaves `f` alone if it throws.
  served_request(weft::worker& me, intrusive_ptr<request_source> from, frame&& f,
                 const limits& bounds, error allocation_error, std::uint32_t rank,
                 std::string_view name)
      : invocation(me, std::move(f), bounds, std::move(allocation_error), rank, name),
        from_(std::move(from)) {}
  ~served_request() override;

  const function_entry* function = nullptr;
  error failure;                  ///< set: a failure is sent instead of `out`
  call_target* target = nullptr;  ///< what the request says of its object, if it has one
  /// Cancels what serves it, or waits for its object, while something does. Called on the worker's
  /// thread.
  std::atomic<cancellable*> runner{nullptr};
  std::uint64_t cost = 0;           ///< in the peer's window, until it begins
  std::uint64_t bulk_cost = 0;      ///< likewise, of its large tensors
  bool begun = false;               ///< as soon as it arrived
  bool forwarded = false;           ///< its object is a reference to one elsewhere
  bool forward_pending = false;     ///< ... and it is not queued there; worker's thread
  bool accounted = false;           ///< a post that ran to its end, or whose failure is told
  held_memory held;                 ///< of a coroutine that has begun, until its end
  std::atomic<bool> served{false};  ///< in the link's `served_calls`, until its answer is queued
  served_request* served_next = nullptr;  ///< ... these two under the link's lock
  served_request** served_link = nullptr;

  /// The run need not wait for this request any more. Called when its function has ended, or, of a
  /// coroutine whose caller would only want the reply, when it has begun; at the latest at its end.
  void done() noexcept;

  /// How it is served here.
  [[nodiscard]] function_style style() const noexcept {
    return forwarded ? function_style::coroutine : function->style;
  }
  [[nodiscard]] request_source& from() const noexcept { return *from_; }
  [[nodiscard]] std::uint64_t call() const noexcept { return in.header().call; }
  /// Nobody waits for a reply.
  [[nodiscard]] bool is_post() const noexcept { return (in.header().flags & flag_no_reply) != 0; }
  /// The caller no longer waits: its function does not begin any more. A post that has not begun
  /// counts as one that did not run from now on, also if it stands in the pool's line for long.
  void give_up() noexcept;
  [[nodiscard]] bool given_up() const noexcept { return fate_.load() == fate::given_up; }
  /// As `give_up`; one that has begun is cancelled. Worker's thread.
  void cancel();
  /// Whether its function may run. If so, it has begun.
  [[nodiscard]] bool may_run() noexcept {
    fate before = fate::open;
    return fate_.compare_exchange_strong(before, fate::runs) || before == fate::runs;
  }

  static void* operator new(std::size_t size) { return recycled_new(size); }
  static void operator delete(void* block, std::size_t size) noexcept {
    recycled_delete(block, size);
  }

 private:
  /// Its deadline passed while its coroutine runs.
  void expired() override {
    if (cancellable* const by = runner.load()) by->cancel();
  }

  enum class fate : std::uint8_t { open, runs, given_up };

  void count_post(bool cut) noexcept;

  intrusive_ptr<request_source> from_;
  std::atomic<fate> fate_{fate::open};
  bool done_ = false;
};

}  // namespace weft::engine
