// SPDX-License-Identifier: BSL-1.0
// What becomes of a process that has no memory for weft's own small objects.
//
// A typed error tells of memory whose size a peer, a tensor or a value of the user's decides:
// payloads, tensors, budgets, what codecs and constructors allocate. All else is weft's own: its
// tables, frames of its coroutines, handlers. No code handles the lack of that. It throws
// std::bad_alloc up to the next of a few doors, each of which ends the process: the handlers that
// weft runs on an io_context (post_or_die.hpp), its alarms, its threads, and the calls by
// which users enter the engine. So nobody sees an engine that is half changed, and the others see a
// lost worker.
#pragma once

#include <weft/config.hpp>

#include <atomic>
#include <new>
#include <utility>

namespace weft::detail {

/// For the sentence: the newest worker of this process, null if there is none, and how many live.
struct process_name {
  WEFT_PROCESS_WIDE inline static std::atomic<const char*> newest{nullptr};
  WEFT_PROCESS_WIDE inline static std::atomic<unsigned> workers{0};
  WEFT_PROCESS_WIDE inline static std::atomic_flag ends;  ///< a thread says so already
};

/// Says so on standard error, and ends the process with status 1. Allocates nothing. Any thread.
[[noreturn, gnu::cold]] void out_of_memory() noexcept;

/// Runs weft's own code, and returns what it does: std::bad_alloc out of it ends the process. What
/// users' code throws in it must have been caught before.
template <class Step>
decltype(auto) or_die(Step&& step) {
  try {
    return std::forward<Step>(step)();
  } catch (const std::bad_alloc&) {
    out_of_memory();
  }
}

/// `handler` as a function that ends the process for want of memory.
template <class Handler>
[[nodiscard]] auto dies(Handler handler) {
  return [mine = std::move(handler)]() mutable { or_die(mine); };
}

}  // namespace weft::detail

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/core/impl/out_of_memory.hpp>
#endif
