// SPDX-License-Identifier: BSL-1.0
// Waiting for what may never end.
#pragma once

#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace weft::engine {

/// Runs `work`, which throws nothing, on a thread of its own and waits until then. False: it goes
/// on, and with it the thread, which may use what `work` refers to for ever.
[[nodiscard]] inline bool ends_by(time_point when, std::function<void()> work) {
  struct shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
  };
  const auto state = std::make_shared<shared>();
  std::thread helper;
  try {
    helper = std::thread([state, work] {
      work();
      const std::lock_guard lock(state->mutex);
      state->ended = true;
      state->changed.notify_all();
    });
  } catch (const std::system_error&) {  // no thread to be had: then it must do without a limit
    work();
    return true;
  }
  std::unique_lock lock(state->mutex);
  const bool ended = state->changed.wait_until(lock, when, [&] { return state->ended; });
  lock.unlock();
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
