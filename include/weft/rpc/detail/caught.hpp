// SPDX-License-Identifier: BSL-1.0
// The exception in flight as an error: whatever users' types, libtorch or the allocator throw while
// a message is made.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/error.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/error.hpp>

#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <typeinfo>

#include <cxxabi.h>

namespace weft::detail {

/// The dynamic type of an exception, readable.
[[nodiscard]] inline std::string type_name_of(const std::exception& e) {
  int status = 0;
  const char* const mangled = typeid(e).name();
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  return status == 0 && readable ? readable.get() : mangled;
}

[[nodiscard]] inline error in_words(const weft::worker& me, const std::exception& e,
                                    call_progress ran) noexcept {
  return or_die([&] {
    return error(errc::not_encodable, me.in_words(e), ran).with([&](error_detail& d) {
      d.remote_type = type_name_of(e);
    });
  });
}

/// What was met before a request was sent, whatever its thrower says of it.
[[nodiscard]] inline error unsent(const error& e) noexcept {
  if (e.ran() == call_progress::not_sent) return e;
  return e.with([](error_detail& d) { d.ran = call_progress::not_sent; });
}

/// Call it in a handler. rpc_error: its error; bad_alloc: resource_exhausted; anything else:
/// not_encodable, with the exception's type and words.
[[nodiscard]] inline error caught(const weft::worker& me,
                                  call_progress ran = call_progress::not_sent) noexcept {
  try {
    throw;
  } catch (const rpc_error& e) {
    return e.error();
  } catch (const std::bad_alloc&) {
    return {errc::resource_exhausted, "no memory for the message (std::bad_alloc)", ran};
  } catch (const std::system_error& e) {
    if (e.code() == asio::error::operation_aborted) {
      return {errc::cancelled, "the caller gave up", ran};
    }
    return in_words(me, e, ran);
  } catch (const std::exception& e) {
    return in_words(me, e, ran);
  } catch (...) {
    return {errc::not_encodable, "something that is not a std::exception was thrown", ran};
  }
}

/// The same where no user's code runs: std::bad_alloc ends the process.
[[nodiscard]] inline error caught_or_die(const weft::worker& me,
                                         call_progress ran = call_progress::not_sent) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    out_of_memory();
  } catch (...) {
    return caught(me, ran);
  }
}

}  // namespace weft::detail
