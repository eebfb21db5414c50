// SPDX-License-Identifier: BSL-1.0
// A call, at its caller.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/function_entry.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/reply.hpp>

#include <cstdint>
#include <string_view>
#include <utility>

namespace weft {

/// Writes the message of a call: parts that services need, then the arguments.
class request_body {
 public:
  /// May throw anything; then nothing is sent.
  virtual void write(message& m) const = 0;
  /// The request is queued. Called only if `send_now` or `send_later` runs on the worker's thread.
  virtual void was_sent() const noexcept {}

 protected:
  ~request_body() = default;
};

/// A call, from its await, start or post until its answer: its link, function, settings and
/// deadline. It begins once: its deadline is its own limit or the worker's default, never later
/// than that of the scope in which it begins. It is copied while it waits. One thread at a time.
class outgoing_call {
 public:
  outgoing_call(link& to, const function_entry& what, detail::call_settings s) noexcept;

  [[nodiscard]] link& to() const noexcept { return *to_; }
  [[nodiscard]] const function_entry& function() const noexcept { return *function_; }
  [[nodiscard]] const detail::call_settings& settings() const noexcept { return settings_; }
  [[nodiscard]] const sent_request& sent() const noexcept { return sent_; }
  [[nodiscard]] time_point begun() const noexcept { return begun_; }
  [[nodiscard]] time_point deadline() const noexcept { return deadline_; }
  /// Whether it waited for room in the outbox, for its link, or for its answer.
  [[nodiscard]] bool waited() const noexcept { return waited_; }

  // ── for links ──
  [[nodiscard]] bool has_begun() const noexcept { return begun_ != time_point{}; }
  void begin(time_point now, time_point deadline) noexcept {
    begun_ = now;
    deadline_ = deadline;
  }
  void was_sent(const sent_request& as) noexcept {
    sent_ = as;
    waited_ = true;
  }
  void waits(bool now) noexcept { waited_ = now; }
  /// There was no room for its tensors.
  [[nodiscard]] bool is_large() const noexcept { return large_; }
  void is_large(bool now) noexcept { large_ = now; }

 private:
  intrusive_ptr<link> to_;
  const function_entry* function_;
  detail::call_settings settings_;
  sent_request sent_;
  time_point begun_{};
  time_point deadline_{};
  bool waited_ = false;
  bool large_ = false;
};

}  // namespace weft
