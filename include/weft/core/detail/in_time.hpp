// SPDX-License-Identifier: BSL-1.0
// Waiting for what may never end.
#pragma once

#include <weft/core/detail/blocking_end.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/time.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace weft::detail {

/// Runs `work`, which throws nothing, on a thread of its own and waits until then. False: it goes
/// on, and with it the thread, which may use what `work` refers to for ever. Where no thread is to
/// be had it must do without a limit.
[[nodiscard]] inline bool ends_by(time_point when, const std::function<void()>& work) noexcept {
  return or_die([&] {
    const auto end = std::make_shared<blocking_end>();
    std::thread helper;
    try {
      helper = std::thread([end, work] {
        work();
        end->set();
      });
    } catch (const std::system_error&) {
      work();
      return true;
    }
    const bool ended = end->wait_until(when);
    ended ? helper.join() : helper.detach();
    return ended;
  });
}

/// Never destroys `object`: threads that cannot be ended still use it. It stays reachable, so that
/// a leak checker knows that this is meant.
template <class T>
void leak(std::unique_ptr<T> object) {
  struct left {
    void* what;
    left* next;
  };
  static std::atomic<left*> first{nullptr};
  auto* const mine = new left{object.release(), nullptr};
  mine->next = first.exchange(mine);
}

}  // namespace weft::detail
