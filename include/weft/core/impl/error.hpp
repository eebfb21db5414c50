// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/error.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/error.hpp>

namespace weft {
namespace detail {

WEFT_DECL const char* text_of(errc code) noexcept {
  switch (code) {
  case errc::timed_out:
    return "timed out";
  case errc::cancelled:
    return "cancelled";
  case errc::peer_died:
    return "peer died";
  case errc::unknown_peer:
    return "unknown peer";
  case errc::unknown_function:
    return "unknown function";
  case errc::signature_mismatch:
    return "signature mismatch";
  case errc::remote_exception:
    return "remote exception";
  case errc::message_too_large:
    return "message too large";
  case errc::protocol_error:
    return "protocol error";
  case errc::bad_arguments:
    return "bad arguments";
  case errc::version_mismatch:
    return "version mismatch";
  case errc::unauthenticated:
    return "unauthenticated";
  case errc::wrong_peer:
    return "wrong peer";
  case errc::duplicate_name:
    return "duplicate name";
  case errc::rendezvous_failed:
    return "rendezvous failed";
  case errc::shutting_down:
    return "shutting down";
  case errc::resource_exhausted:
    return "resource exhausted";
  case errc::too_many_calls:
    return "too many calls";
  case errc::not_encodable:
    return "not encodable";
  case errc::no_common_transport:
    return "no common transport";
  case errc::closed:
    return "closed";
  case errc::invalid_argument:
    return "invalid argument";
  case errc::rref_owner_died:
    return "rref owner died";
  case errc::rref_lost:
    return "rref lost";
  case errc::rref_not_owner:
    return "rref not owner";
  case errc::autograd_context_gone:
    return "autograd context gone";
  case errc::autograd_pass_aborted:
    return "autograd pass aborted";
  case errc::worker_failed:
    return "worker failed";
  case errc::ambiguous_function:
    return "ambiguous function";
  }
  return "unknown error";
}

WEFT_DECL const char* text_of(call_progress ran) noexcept {
  switch (ran) {
  case call_progress::not_sent:
    return "not sent";
  case call_progress::not_executed:
    return "not executed";
  case call_progress::maybe_executed:
    return "maybe executed";
  case call_progress::executed:
    return "executed";
  }
  return "?";
}

}  // namespace detail

WEFT_DECL error::error(errc code, std::string_view text, call_progress ran, origin from) noexcept
    : code_(make_error_code(code)) {
  detail::or_die([&] {
    auto detail = make_intrusive<error_detail>();
    detail->text = text;
    detail->ran = ran;
    detail->from = from;
    detail_ = std::move(detail);
  });
}

WEFT_DECL rpc_error::rpc_error(weft::error e)
    : std::system_error(e.code()),
      error_(std::move(e)),
      text_(std::make_shared<const std::string>(error_.message())) {}
WEFT_DECL rpc_error::rpc_error(errc code, std::string_view text, call_progress ran)
    : rpc_error(weft::error(code, text, ran)) {}

WEFT_DECL const error_detail& error::detail() const noexcept {
  static const error_detail none;
  return detail_ ? *detail_ : none;
}

WEFT_DECL bool error::safe_to_repeat() const noexcept {
  return ran() == call_progress::not_sent || ran() == call_progress::not_executed;
}

WEFT_DECL std::string error::message() const {
  if (!code_) return "success";
  const error_detail& d = detail();
  std::string text = d.text;
  error why = cause();
  // Texts quote their causes, and causes and texts name workers: everything is said once.
  std::string because = why ? why.message() : "";
  if (why && text == because) {
    text.clear();
    if (why.code() == code_ && why.detail().function.empty() && why.detail().peer == d.peer) {
      text = why.detail().text;  // the cause is what this is, seen from outside
      why = why.cause();
      because = why ? why.message() : "";
    }
  }
  std::string out;
  if (!d.function.empty()) out += "call of '" + d.function + "'";
  if (!d.peer.empty()) out += (out.empty() ? "worker '" : " on worker '") + d.peer + "'";
  if (!out.empty()) out += ": ";
  out += code_.message();
  if (text.starts_with(out + ": ")) {
    out = std::move(text);
  } else if (!text.empty()) {
    out += ": " + text;
  }
  if (d.elapsed.count() > 0) out += " (after " + std::to_string(d.elapsed.count() / 1000) + " ms)";
  if (!d.function.empty()) out += std::string(" [") + weft::detail::text_of(d.ran) + "]";
  if (why && out.find(because) == std::string::npos) out += "; caused by: " + because;
  return out;
}

}  // namespace weft
