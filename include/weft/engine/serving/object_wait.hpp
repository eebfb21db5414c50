// SPDX-License-Identifier: BSL-1.0
// A request whose object is still being made.
//
//   link ─ enter ─► object ─ object_there, any thread ─┬─ plain ────► object_found
//        │                                             └─ coroutine ► inbox ─ begin ─► object_found
//        └─ watch, worker's thread ─► its caller gives up, its link is lost, or its deadline
//                                     passes ─► object_missed
//
// Whoever takes the request out has it alone: it goes on in exactly one way. A plain function goes
// on though the worker's thread computes; then nothing of its wait is left for that thread.
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/core/timer_list.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/serving/cancellable.hpp>
#include <weft/engine/serving/served_request.hpp>
#include <weft/rpc/call_target.hpp>

#include <cstdint>
#include <mutex>

namespace weft::engine {

/// Its object holds it, its link until it is watched, or an entry of the inbox.
class object_wait final : public object_waiter, public cancellable, public deadline_entry {
 public:
  /// `number` is the link's, of its waits.
  object_wait(link_host& me, intrusive_ptr<served_request> call, std::uint64_t number);
  ~object_wait() override;

  void object_there() noexcept override;
  /// The request has been taken out. Any thread.
  [[nodiscard]] bool ended();

  // The worker's thread:
  /// From now on it can be cancelled; of one that has ended, it leaves the deadlines.
  void watch();
  /// The object is there, and it is this request's turn.
  void begin();
  /// The caller gave up, or its link is lost.
  void cancel() override;

 private:
  void expired() override { cancel(); }
  /// Null if another has taken it.
  [[nodiscard]] intrusive_ptr<served_request> take() noexcept;
  void leave_deadlines() noexcept;

  link_host& me_;
  const std::uint64_t number_;
  const bool of_coroutine_;
  std::mutex mutex_;  // guards the next two
  intrusive_ptr<served_request> call_;
  bool watched_ = false;
};

}  // namespace weft::engine
