// SPDX-License-Identifier: BSL-1.0
// The course of a call that may be repeated: after each attempt, whether and when there is another.
// No I/O and no clock of its own.
//
//   next ─► an attempt ─► pause_after ─► a pause ─► next ...
//                              └─ none: conclude
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/random.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/retry_options.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace weft::detail {

/// Whether another attempt could end otherwise. Every code has its line: whoever adds one decides.
[[nodiscard]] constexpr bool worth_repeating(errc why) noexcept {
  switch (why) {
  case errc::timed_out:           // of one attempt
  case errc::resource_exhausted:  // memory, or places, come back
  case errc::too_many_calls:
    return true;
  case errc::cancelled:              // the caller, or the function, gave up
  case errc::peer_died:              // it never comes back under its name
  case errc::unknown_peer:           // names are known before main
  case errc::unknown_function:       // programs do not change
  case errc::signature_mismatch:     // as that
  case errc::remote_exception:       // the function itself has said no
  case errc::message_too_large:      // the same arguments are as large again
  case errc::protocol_error:         // the link is lost
  case errc::bad_arguments:          // the same bytes are read the same way
  case errc::version_mismatch:       // programs do not change
  case errc::unauthenticated:        // nor do tokens
  case errc::wrong_peer:             // nor addresses
  case errc::duplicate_name:         // nor names
  case errc::rendezvous_failed:      // workers meet once
  case errc::shutting_down:          // the run is over
  case errc::not_encodable:          // the same value is as bad again
  case errc::no_common_transport:    // transports do not change
  case errc::closed:                 // the link is lost
  case errc::invalid_argument:       // the caller's mistake
  case errc::rref_owner_died:        // as peer_died
  case errc::rref_lost:              // freed for ever
  case errc::rref_not_owner:         // the caller's mistake
  case errc::autograd_context_gone:  // released for ever
  case errc::autograd_pass_aborted:  // its context is as it was before; the pass is not
  case errc::worker_failed:          // the run is over
  case errc::ambiguous_function:     // programs do not change
    return false;
  }
  return false;
}

/// What may be repeated.
enum class repeats : std::uint8_t { what_did_not_run, anything };

/// One thread at a time.
class retry_course {
 public:
  retry_course(const retry& how, repeats what, time_point deadline) noexcept
      : attempts_(how.attempts),
        each_(how.each),
        most_(std::max(how.longest, duration::zero())),
        what_(what),
        deadline_(deadline),
        longest_(std::clamp(how.first, duration::zero(), most_)) {}

  /// Another attempt begins: until when it may last.
  [[nodiscard]] time_point next(time_point now) noexcept {
    ++made_;
    attempt_ends_ = deadline_;
    if (each_ > duration::zero()) attempt_ends_ = std::min(deadline_, later(now, each_));
    return attempt_ends_;
  }
  /// It failed: when the pause behind it ends. None: there is no other attempt.
  [[nodiscard]] std::optional<time_point> pause_after(const error& e, time_point now,
                                                      random_source& random) {
    ran_ = std::max(ran_, e.ran());
    if (made_ >= attempts_ || !may_repeat(e)) return std::nullopt;
    const time_point ends = later(now, draw(random));
    if (ends >= deadline_) return std::nullopt;
    return ends;
  }
  /// The error of the call, whose last one this is.
  [[nodiscard]] error conclude(const error& last) const noexcept {
    return last.with([this](error_detail& d) {
      d.ran = ran_;
      if (!d.text.empty()) d.text += "; ";
      d.text += std::to_string(made_) + (made_ == 1 ? " attempt" : " attempts");
    });
  }

 private:
  [[nodiscard]] bool may_repeat(const error& e) const noexcept {
    if (e.code().category() != category()) return false;
    if (e == errc::timed_out && attempt_ends_ == deadline_) return false;  // the call's own
    return worth_repeating(static_cast<errc>(e.code().value())) &&
           (e.safe_to_repeat() || what_ == repeats::anything);
  }
  [[nodiscard]] duration draw(random_source& random) {
    const auto longest = static_cast<std::uint64_t>(longest_.count());
    longest_ = longest_ > most_ / 2 ? most_ : 2 * longest_;
    return duration(static_cast<duration::rep>(random() % (longest + 1)));
  }

  const int attempts_;
  const duration each_;
  const duration most_;  // of any pause
  const repeats what_;
  const time_point deadline_;
  time_point attempt_ends_{};
  duration longest_;  // the next pause
  int made_ = 0;
  call_progress ran_ = call_progress::not_sent;  // the furthest of all attempts
};

}  // namespace weft::detail
