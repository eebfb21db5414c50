// SPDX-License-Identifier: BSL-1.0
// Allocations of simulated workers fail where their world says so.
#include <weft/sim/memory.hpp>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
void* allocate(std::size_t size) noexcept {
  return weft::sim::memory::fails() ? nullptr : std::malloc(size == 0 ? 1 : size);
}
}  // namespace

void* operator new(std::size_t size) {
  if (void* p = allocate(size)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
