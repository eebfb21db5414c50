// SPDX-License-Identifier: BSL-1.0
// The few sentences that weft prints by itself, such as why a run has failed.
#pragma once

#include <weft/config.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

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
/// One for all shared libraries of a process.
WEFT_PROCESS_WIDE inline log_target& the_log() {
  static log_target& all = *new log_target;  // the last threads of a process may say something
  return all;
}
/// Says it.
void say(std::string_view who, std::string_view text);

}  // namespace detail

/// Gives every sentence of this process to `sink` instead of standard error, where it reads
/// "weft: who: text". An empty `sink` restores standard error. Any thread. From then on weft calls
/// `sink` on any thread, on several at once. `sink` must not block: weft also calls it where weft
/// must not wait. Exceptions of `sink` are dropped.
///
///   weft::log_to([](const weft::log_entry& e) { my_logger.warn("{}: {}", e.who, e.text); });
void log_to(std::function<void(const log_entry&)> sink);

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/core/impl/log.hpp>
#endif
