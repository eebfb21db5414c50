// SPDX-License-Identifier: BSL-1.0
// The options of weft/rpc/retry.hpp, without the code that carries them out.
#pragma once

#include <weft/core/time.hpp>
#include <weft/rpc/call_options.hpp>

#include <chrono>

namespace weft {

/// Whether running F twice, also at the same time, is as good as running it once. The author of F
/// specialises this, outside of all namespaces, wherever F is declared. F is a function or a member
/// function. A `named` function is idempotent if it or its function is. `to_here` always is.
template <auto F>
inline constexpr bool idempotent = false;

/// Option of `call`, `start` and `to_here`. (`start` still throws too_many_calls at once.) Repeats
/// a call that failed, if the cause may pass: resource_exhausted, too_many_calls, or timed_out of
/// one attempt. Besides, the function must not have run (`error::safe_to_repeat()`), or must be
/// `idempotent`. Any other function never runs twice. The arguments are converted once.
///
/// All attempts share the one deadline of the call. A pause is drawn evenly between zero and its
/// limit, in the worker's time; the limit doubles from pause to pause. This is the "full jitter" of
/// "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015): callers that failed together do
/// not come back together. If a pause would not end before the deadline, the call ends without it.
///
/// The call fails with the error of its last attempt, at once, or with cancelled. The text says how
/// many attempts there were; `ran()` is the furthest that any of them got. Cancelling ends a pause,
/// as it ends an attempt. A reply that cannot be read is not asked for again.
struct retry {
  /// The most attempts, the first one included.
  int attempts = 5;
  /// The limit of the first pause.
  duration first = std::chrono::milliseconds(50);
  /// The limit of any pause.
  duration longest = std::chrono::seconds(2);
  /// The limit of one attempt; 0: that of the call. An attempt without a reply by then is given up,
  /// and cancelled at the callee; a plain function that has begun runs on. If F may have run and is
  /// not idempotent, the call fails with timed_out.
  duration each{};
};

template <>
inline constexpr bool is_call_option<retry> = true;

}  // namespace weft
