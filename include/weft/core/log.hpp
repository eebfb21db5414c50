// SPDX-License-Identifier: BSL-1.0
// The few sentences that weft prints by itself, such as why a run has failed.
#pragma once

#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// One sentence, without the end of line.
struct log_entry {
  std::string_view who;   ///< the worker's name; empty: the launcher
  std::string_view text;  ///< UTF-8
};

namespace detail {

using log_sink = std::function<void(const log_entry&)>;
struct log_target {
  std::mutex mutex;
  std::shared_ptr<const log_sink> sink;  // null: standard error
};
inline log_target& the_log() {
  static log_target& all = *new log_target;  // the last threads of a process may say something
  return all;
}
void say(std::string_view who, std::string_view text);

}  // namespace detail

/// Gives every sentence of this process to `sink` instead of standard error, where it reads
/// "weft: who: text". An empty `sink` restores standard error. Any thread. From then on weft calls
/// `sink` on any thread, on several at once. `sink` must not block: weft also calls it where weft
/// must not wait. Exceptions of `sink` are dropped.
///
///   weft::log_to([](const weft::log_entry& e) { my_logger.warn("{}: {}", e.who, e.text); });
inline void log_to(std::function<void(const log_entry&)> sink) {
  std::shared_ptr<const detail::log_sink> next;
  if (sink) next = std::make_shared<const detail::log_sink>(std::move(sink));
  const std::lock_guard lock(detail::the_log().mutex);
  detail::the_log().sink.swap(next);
}

/// Says it.
inline void detail::say(std::string_view who, std::string_view text) {
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
