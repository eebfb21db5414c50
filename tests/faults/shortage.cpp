// SPDX-License-Identifier: BSL-1.0
#include "shortage.hpp"

#include <atomic>
#include <core/own_operator_new.hpp>
#include <cstddef>
#include <new>

namespace {
// Only threads that asked for theirs have one: any allocation looks here.
thread_local weft::testing::thread_memory* mine = nullptr;
std::atomic<weft::testing::thread_memory*> all{nullptr};
}  // namespace

namespace weft::testing {

bool allocation_fails(std::size_t bytes) noexcept { return mine && mine->fails(bytes); }

thread_memory& thread_memory::here() {
  if (mine) return *mine;
  // Never freed, but kept: whoever made it lack may ask after the thread's end.
  auto* const fresh = new (__real_malloc(sizeof(thread_memory))) thread_memory;
  fresh->next_ = all.exchange(fresh);
  mine = fresh;
  return *fresh;
}

}  // namespace weft::testing
