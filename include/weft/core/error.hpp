// SPDX-License-Identifier: BSL-1.0
// Errors: one value type for every failure, thrown as `rpc_error` or delivered as `expected`.
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <tl/expected.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace weft {

/// Codes of errors. Values are part of the wire format: append only.
enum class errc : int {
  timed_out = 1,        ///< the deadline passed
  cancelled,            ///< the caller gave up, or the function was cancelled
  peer_died,            ///< the peer or its link is lost, or the run has failed
  unknown_peer,         ///< no worker has that name or rank
  unknown_function,     ///< the peer's program does not contain the function
  signature_mismatch,   ///< the peer's function has other parameter or result types
  remote_exception,     ///< the function threw
  message_too_large,    ///< over a frame limit
  protocol_error,       ///< bytes are no weft message, or stop within one; the link is closed
  bad_arguments,        ///< a frame's payload does not decode, or an object has another type
  version_mismatch,     ///< the peers speak different versions or features
  unauthenticated,      ///< wrong job token
  wrong_peer,           ///< another process answered at that address
  duplicate_name,       ///< two workers, or two published objects of one, have one name
  rendezvous_failed,    ///< the store failed, or workers are missing at the deadline
  shutting_down,        ///< this worker's run is over
  resource_exhausted,   ///< a limit, memory or descriptors ran out
  too_many_calls,       ///< the outbox or the peer's window is full
  not_encodable,        ///< a value cannot be sent (quantised tensors, ...), or its codec threw
  no_common_transport,  ///< none of the transports reaches the peer
  closed,               ///< the channel or connection is closed
  invalid_argument,     ///< the caller's argument is wrong
  rref_owner_died,      ///< the process that owned the object is gone
  rref_lost,            ///< the object was freed while its reference travelled, or never asked for
  rref_not_owner,       ///< only the owner may do this
  autograd_context_gone,  ///< the context was released, or never existed
  autograd_pass_aborted,  ///< a worker failed in backward; nothing of the pass is visible
  worker_failed,          ///< a worker's main ended with an error, or its function did not return
  ambiguous_function,     ///< a caller cannot tell two functions apart, or one has no portable name
};

/// How far the call got. Only `not_sent` and `not_executed` are safe to repeat blindly.
enum class call_progress : std::uint8_t { not_sent, not_executed, maybe_executed, executed };

/// The part that noticed the failure.
enum class origin : std::uint8_t { local, transport, remote_runtime, remote_user };

/// The parts of an error. Constant once made; copies share it.
struct error_detail : ref_counted {
  origin from = origin::local;
  call_progress ran = call_progress::not_sent;
  std::string text;               ///< the cause in words
  std::string peer;               ///< name of the other worker, empty if none
  std::uint64_t incarnation = 0;  ///< of the peer
  std::string function;           ///< qualified name, empty if none
  std::chrono::microseconds deadline{0};
  std::chrono::microseconds elapsed{0};
  std::string remote_type;  ///< type of a remote exception
  std::error_code cause_code;
  intrusive_ptr<const error_detail> cause;  ///< the error that led to it, if `cause_code` is set
};

[[nodiscard]] WEFT_PROCESS_WIDE const std::error_category& category() noexcept;
[[nodiscard]] inline std::error_code make_error_code(errc code) noexcept {
  return {static_cast<int>(code), category()};
}

/// 24 bytes, cheap to copy. A default-constructed error means success.
class error {
 public:
  error() noexcept = default;
  explicit error(errc code) noexcept : code_(make_error_code(code)) {}
  error(std::error_code code, intrusive_ptr<const error_detail> detail) noexcept
      : code_(code), detail_(std::move(detail)) {}
  error(errc code, std::string_view text, call_progress ran = call_progress::not_sent,
        origin from = origin::local) noexcept;

  [[nodiscard]] const std::error_code& code() const noexcept { return code_; }
  [[nodiscard]] const error_detail& detail() const noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(code_); }
  [[nodiscard]] const intrusive_ptr<const error_detail>& shared_detail() const noexcept {
    return detail_;
  }
  [[nodiscard]] bool operator==(errc code) const noexcept { return code_ == make_error_code(code); }
  [[nodiscard]] call_progress ran() const noexcept { return detail().ran; }
  /// True: the call did not run, so it may be repeated, whatever its function does.
  [[nodiscard]] bool safe_to_repeat() const noexcept;
  [[nodiscard]] error cause() const noexcept { return {detail().cause_code, detail().cause}; }
  /// A sentence with function, peer, cause and how far the call got.
  [[nodiscard]] std::string message() const;
  /// A copy whose detail is changed by `edit(error_detail&)`.
  template <class Edit>
  [[nodiscard]] error with(Edit&& edit) const;

 private:
  std::error_code code_;
  intrusive_ptr<const error_detail> detail_;
};

/// Every awaited operation that fails throws it. Only some cancelled waits, such as for an event, a
/// channel, `sleep_for` or `on_pool`, throw std::system_error operation_aborted instead.
class rpc_error : public std::system_error {
 public:
  explicit rpc_error(weft::error e);
  rpc_error(errc code, std::string_view text, call_progress ran = call_progress::not_sent);
  [[nodiscard]] const weft::error& error() const noexcept { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return text_->c_str(); }

 private:
  weft::error error_;
  std::shared_ptr<const std::string> text_;
};

namespace detail {
[[nodiscard]] const char* text_of(errc code) noexcept;
[[nodiscard]] const char* text_of(call_progress ran) noexcept;

class error_category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "weft"; }
  [[nodiscard]] std::string message(int code) const override {
    return text_of(static_cast<errc>(code));
  }
};
}  // namespace detail

/// One for all shared libraries of a process: inline, as a body that is compiled once is not.
inline const std::error_category& category() noexcept {
  static const detail::error_category instance;
  return instance;
}

template <class Edit>
error error::with(Edit&& edit) const {
  return detail::or_die([&] {
    auto copy = make_intrusive<error_detail>();
    const error_detail& d = detail();
    copy->from = d.from;
    copy->ran = d.ran;
    copy->text = d.text;
    copy->peer = d.peer;
    copy->incarnation = d.incarnation;
    copy->function = d.function;
    copy->deadline = d.deadline;
    copy->elapsed = d.elapsed;
    copy->remote_type = d.remote_type;
    copy->cause_code = d.cause_code;
    copy->cause = d.cause;
    std::forward<Edit>(edit)(*copy);
    return error(code_, intrusive_ptr<const error_detail>(std::move(copy)));
  });
}

template <class T>
using expected = tl::expected<T, error>;
using tl::unexpected;

/// Call option: deliver failures as `expected<T>` instead of throwing.
struct as_expected_t {};
inline constexpr as_expected_t as_expected{};

}  // namespace weft

template <>
struct std::is_error_code_enum<weft::errc> : std::true_type {};

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/core/impl/error.hpp>
#endif
