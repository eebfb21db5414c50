// SPDX-License-Identifier: BSL-1.0
// Every allocation of a program, but those of its libraries, asks the program first. For one file of
// a program that is linked with --wrap=malloc (which weft calls itself) and --wrap=aligned_alloc
// (which Asio calls); not with a sanitizer whose own operator new comes first.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace weft::testing {

/// Defined by that file: whether the allocation of so many bytes that is about to be made fails.
[[nodiscard]] bool allocation_fails(std::size_t bytes) noexcept;

}  // namespace weft::testing

extern "C" {
void* __real_malloc(std::size_t size);  // NOLINT: the linker's names
void* __real_aligned_alloc(std::size_t align, std::size_t size);
void* __wrap_malloc(std::size_t size) {
  return weft::testing::allocation_fails(size) ? nullptr : __real_malloc(size == 0 ? 1 : size);
}
void* __wrap_aligned_alloc(std::size_t align, std::size_t size) {
  return weft::testing::allocation_fails(size) ? nullptr : __real_aligned_alloc(align, size);
}
}

void* operator new(std::size_t size) {
  if (void* p = __wrap_malloc(size)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return __wrap_malloc(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return __wrap_malloc(size);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
