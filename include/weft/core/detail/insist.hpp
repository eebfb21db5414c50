// SPDX-License-Identifier: BSL-1.0
// Work that somebody counts on, though memory may lack for a moment.
//
// Where Asio itself ends the process. Debian 12's 1.22 does in 8 of the 22 places where an echo of
// two coroutines allocates, and is refused. 1.30 in none: there each lack is told to who waits, or
// leaves `run` (tests/faults/asio_itself.cpp goes through them), which weft takes for the end of
// the run. What is left is a lack that lasts: a handler that could not be kept is destroyed, and
// if a coroutine hangs on it, `~awaitable_thread` posts its frame's destruction to the executor,
// from a destructor, which needs memory again. That is so in co_spawn and in each operation, post
// and dispatch that is awaited with use_awaitable. weft therefore waits for memory before it hands
// over what a coroutine of a user hangs on (`await_memory`, detail/sure_post.hpp); a process that
// has none for longer than that ends here.
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
