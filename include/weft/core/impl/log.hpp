// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/log.hpp.
#pragma once

#include <weft/core/log.hpp>

#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace weft {
WEFT_DECL void log_to(std::function<void(const log_entry&)> sink) {
  std::shared_ptr<const detail::log_sink> next;
  if (sink) next = std::make_shared<const detail::log_sink>(std::move(sink));
  const std::lock_guard lock(detail::the_log().mutex);
  detail::the_log().sink.swap(next);
}

WEFT_DECL void detail::say(std::string_view who, std::string_view text) {
  std::shared_ptr<const log_sink> sink;
  {
    const std::lock_guard lock(the_log().mutex);
    sink = the_log().sink;
  }
  if (sink) {
    try {
      (*sink)({who, text});
    } catch (...) {  // the sink's own matter
    }
    return;
  }
  std::string line = "weft: ";  // in one piece
  if (!who.empty()) line.append(who).append(": ");
  std::cerr << line.append(text).append("\n") << std::flush;
}

}  // namespace weft
