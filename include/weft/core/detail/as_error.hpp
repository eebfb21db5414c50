// SPDX-License-Identifier: BSL-1.0
// Any exception as an error: of work that weft runs for somebody who gets errors as values.
#pragma once

#include <weft/core/detail/what_of.hpp>
#include <weft/core/error.hpp>

#include <asio/error.hpp>

#include <exception>
#include <new>
#include <system_error>

namespace weft::detail {

/// What was thrown, as an error.
[[nodiscard]] inline error as_error(const std::exception_ptr& what) noexcept {
  constexpr auto ran = call_progress::maybe_executed;
  try {
    std::rethrow_exception(what);
  } catch (const rpc_error& e) {
    return e.error();
  } catch (const std::bad_alloc&) {
    return {errc::resource_exhausted, "no memory (std::bad_alloc)", ran};
  } catch (const std::system_error& e) {
    const bool stopped = e.code() == asio::error::operation_aborted;
    return {stopped ? errc::cancelled : errc::remote_exception, what_of(e), ran};
  } catch (const std::exception& e) {
    return {errc::remote_exception, what_of(e), ran};
  } catch (...) {
    return {errc::remote_exception, "an exception that is not a std::exception", ran};
  }
}

/// Of a call whose function threw an error of weft's: that error, as if it had been thrown here.
[[nodiscard]] inline error as_thrown_there(const error& e) noexcept {
  const error cause = e == errc::remote_exception ? e.cause() : error();
  return cause ? cause : e;
}

}  // namespace weft::detail
