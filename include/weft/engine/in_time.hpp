// SPDX-License-Identifier: BSL-1.0
// Waiting for what may never end.
#pragma once

#include <weft/core/detail/blocking_end.hpp>
#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace weft::engine {

/// Runs `work`, which throws nothing, on a thread of its own and waits until then. False: it goes
/// on, and with it the thread, which may use what `work` refers to for ever.
[[nodiscard]] inline bool ends_by(time_point when, std::function<void()> work) {
  const auto end = std::make_shared<detail::blocking_end>();
  std::thread helper;
  try {
    helper = std::thread([end, work] {
      work();
      end->set();
    });
  } catch (const std::system_error&) {  // no thread to be had: then it must do without a limit
    work();
    return true;
  }
  const bool ended = end->wait_until(when);
  ended ? helper.join() : helper.detach();
  return ended;
}

/// Never destroys `object`: threads that cannot be ended still use it. It stays reachable, so that
/// a leak checker knows that this is meant.
template <class T>
void leave_behind(std::unique_ptr<T> object) {
  struct left {
    void* what;
    left* next;
  };
  static std::atomic<left*> first{nullptr};
  auto* const mine = new left{object.release(), nullptr};
  mine->next = first.exchange(mine);
}

}  // namespace weft::engine
