// SPDX-License-Identifier: BSL-1.0
// Calls that are repeated: which may be, how often, and with what pauses.
//
//   template <>
//   inline constexpr bool weft::idempotent<&lookup> = true;  // beside the function's declaration
//
//   co_await p.call<&lookup>(key, weft::retry{.each = 200ms}, weft::within(2s));
#pragma once

#include <weft/core/time.hpp>
#include <weft/rpc/call_options.hpp>

#include <chrono>

namespace weft {

/// Whether running F twice, also at the same time, is as good as running it once. Its author says
/// so, outside of all namespaces, wherever F is declared. F is a function or a member function; a
/// `named` one is idempotent if it or its function is. `to_here` always is.
template <auto F>
inline constexpr bool idempotent = false;

/// Option of `call`, `start` (which throws too_many_calls at once all the same) and `to_here`: a
/// call that fails is made again, if what failed may
/// pass (resource_exhausted, too_many_calls, or timed_out of one attempt) and if the function did
/// not run (`error::safe_to_repeat()`) or is `idempotent`. Any other never runs twice. The
/// arguments are converted once.
///
/// All attempts share the one deadline of the call. A pause lasts, in the worker's time, between
/// nothing and its longest, evenly drawn, and that doubles from pause to pause: the "full jitter"
/// of "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015), by which callers that failed
/// together do not come back together. One that would not end before the deadline is not begun.
///
/// The call fails with the error of its last attempt, at once, or with cancelled; its text says how
/// many attempts there were, and its `ran()` how far any of them got. Cancelling ends a pause, as
/// it ends an attempt. A reply that cannot be read is not asked for again.
struct retry {
  /// At most, the first one included.
  int attempts = 5;
  /// The longest first pause.
  duration first = std::chrono::milliseconds(50);
  /// The longest of all.
  duration longest = std::chrono::seconds(2);
  /// The limit of one attempt; 0: that of the call. An attempt that has no reply by then is given
  /// up, and cancelled there, though a plain function that runs goes on. If F is not idempotent it
  /// may have run, and then that is the end: timed_out.
  duration each{};
};

template <>
inline constexpr bool is_call_option<retry> = true;

}  // namespace weft
