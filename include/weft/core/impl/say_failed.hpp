// SPDX-License-Identifier: BSL-1.0
// What nobody waits for has failed.
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/as_error.hpp>
#include <weft/core/log.hpp>

#include <exception>
#include <string>

namespace weft::detail {

/// Says so, unless it was cancelled.
WEFT_DECL void say_failed(const std::string& who, const char* what,
                          const std::exception_ptr& why) noexcept {
  or_die([&] {
    const error e = as_error(why);
    if (e == errc::cancelled) return;
    say(who, std::string(what) + " failed: " + e.message());
  });
}

}  // namespace weft::detail
