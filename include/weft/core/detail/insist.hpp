// SPDX-License-Identifier: BSL-1.0
// Work that somebody counts on, though memory may lack for a moment.
#pragma once

#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace weft::detail {

/// How long one waits for memory: about a tenth of a second.
class patience {
 public:
  /// Waits a moment. False, at once: it has waited long enough.
  [[nodiscard]] bool more() {
    constexpr int at_once = 64;
    if (tries_ == at_once + 100) return false;
    if (++tries_ <= at_once) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  int tries_ = 0;
};

/// Runs `step` again while it throws std::bad_alloc and patience lasts; then it throws that.
/// Semantic duty: what threw may be run again. Hold no lock meanwhile.
template <class Step>
decltype(auto) insist(Step&& step, patience& left) {
  for (;;) {
    try {
      return step();
    } catch (const std::bad_alloc&) {
      if (!left.more()) throw;
    }
  }
}
template <class Step>
decltype(auto) insist(Step&& step) {
  patience left;
  return insist(std::forward<Step>(step), left);
}

/// Returns when a small block can be had, or `insist` would give up. Before a handler is given to
/// Asio, which destroys it where it finds no memory for it.
inline void await_memory(patience& left) noexcept {
  try {
    insist([] { ::operator delete(::operator new(512)); }, left);
  } catch (const std::bad_alloc&) {
  }
}
inline void await_memory() noexcept {
  patience left;
  await_memory(left);
}

}  // namespace weft::detail
