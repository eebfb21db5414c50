// SPDX-License-Identifier: BSL-1.0
// The error of an object that was never made, as those are told who use it.
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/table.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::engine {

/// Of this program; null if it has none of that id.
[[nodiscard]] inline const function_entry* find_function(std::uint64_t id) noexcept {
  const function_entry* f = first_function;
  while (f && f->id != id) f = f->next;
  return f;
}

/// Says what was to make the object, and how far that got, before the words of `why`. Whoever uses
/// the object adds the function that he calls on it. What was not made for want of another object
/// has that one's words.
[[nodiscard]] inline error not_made(const error& why, std::string_view function) noexcept {
  return why.with([&](error_detail& d) {
    constexpr std::string_view begin = "the object was not made: ";
    d.function.clear();
    if (d.text.starts_with(begin)) return;
    std::string text(begin);
    if (!function.empty()) {
      const std::string name = "'" + std::string(function) + "'";
      const bool threw = why == errc::remote_exception && d.ran == call_progress::executed;
      text += threw                                  ? name + " threw: "
              : d.ran == call_progress::not_sent     ? "the request for " + name + " was not sent: "
              : d.ran == call_progress::not_executed ? name + " was not run: "
              : d.ran == call_progress::maybe_executed ? name + " was cut short: "
                                                       : name + " failed: ";
    }
    d.text = text + (d.text.empty() ? why.code().message() : d.text);
  });
}

}  // namespace weft::engine
