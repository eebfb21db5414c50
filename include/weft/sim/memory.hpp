// SPDX-License-Identifier: BSL-1.0
// Allocations of a simulated process that fail.
#pragma once

#include <cstdint>
#include <utility>

namespace weft::sim {

/// The memory of whoever's handler runs, as a world decides (settings::lacks_memory_per_1024). A
/// program that wants allocations to fail replaces operator new by one that asks:
///
///   void* operator new(std::size_t size) {
///     void* const p = weft::sim::memory::fails() ? nullptr : std::malloc(size);
///     return p ? p : throw std::bad_alloc();
///   }
class memory {
 public:
  /// Whether the allocation that this thread is about to make fails. Outside of handlers of a world
  /// none does.
  [[nodiscard]] static bool fails() noexcept {
    state& s = here;
    if (s.before == 0 || s.spared > 0) return false;
    if (--s.before > 0) return false;
    s.failed = true;
    if (s.more > 0) {
      --s.more;
      s.before = 1;
    }
    return true;
  }
  /// While one lives this thread's allocations succeed, and are not counted: those of who watches.
  class spared {
   public:
    spared() noexcept { ++here.spared; }
    spared(const spared&) = delete;
    spared& operator=(const spared&) = delete;
    ~spared() { --here.spared; }
  };

 private:
  friend class world;
  /// The n-th from now on fails, and `more` right behind it. Counts from 1.
  static void lack(std::uint32_t nth, std::uint32_t more) noexcept {
    here.before = nth;
    here.more = more;
    here.failed = false;
  }
  /// All succeed again. Whether one failed since `lack`.
  static bool suffice() noexcept {
    here.before = here.more = 0;
    return std::exchange(here.failed, false);
  }

  /// One failed since `lack`.
  static bool failed() noexcept { return here.failed; }

  struct state {
    std::uint32_t before = 0;  // until one fails; 0: none will
    std::uint32_t more = 0;
    std::uint32_t spared = 0;
    bool failed = false;
  };
  static thread_local state here;
};
inline thread_local constinit memory::state memory::here{};

}  // namespace weft::sim
