// SPDX-License-Identifier: BSL-1.0
#include "shortage.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

extern "C" {
void* __real_malloc(std::size_t size);  // NOLINT: the linker's names
}

namespace {
// Only threads that asked for theirs have one: any allocation looks here.
thread_local weft::testing::thread_memory* mine = nullptr;
std::atomic<weft::testing::thread_memory*> all{nullptr};

void* memory(std::size_t size) noexcept {
  return mine && mine->fails(size) ? nullptr : __real_malloc(size == 0 ? 1 : size);
}
}  // namespace

namespace weft::testing {

thread_memory& thread_memory::here() {
  if (mine) return *mine;
  // Never freed, but kept: whoever made it lack may ask after the thread's end.
  auto* const fresh = new (__real_malloc(sizeof(thread_memory))) thread_memory;
  fresh->next_ = all.exchange(fresh);
  mine = fresh;
  return *fresh;
}

}  // namespace weft::testing

extern "C" {
void* __wrap_malloc(std::size_t size) { return memory(size); }
}

void* operator new(std::size_t size) {
  if (void* p = memory(size)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return memory(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return memory(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
