// SPDX-License-Identifier: BSL-1.0
#include "shortage.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
thread_local long left = 0;  // until one fails; 0: none will
thread_local long then = 0;  // that fail behind it
thread_local bool hit = false;

bool fails() noexcept {
  if (left == 0) return false;
  if (left > 1) {
    --left;
    return false;
  }
  hit = true;
  if (then == 0) {
    left = 0;
  } else {
    --then;
  }
  return true;
}
}  // namespace

namespace weft::testing {
shortage::shortage(long nth, long further) { arm(nth, further); }
shortage::~shortage() { disarm(); }
bool shortage::struck() noexcept { return hit; }
void shortage::arm(long nth, long further) noexcept {
  left = nth;
  then = further;
  hit = false;
}
void shortage::disarm() noexcept { left = 0; }
}  // namespace weft::testing

extern "C" {
void* __real_malloc(std::size_t size);  // NOLINT: the linker's names
void* __wrap_malloc(std::size_t size) { return fails() ? nullptr : __real_malloc(size); }
}

void* operator new(std::size_t size) {
  if (void* p = fails() ? nullptr : __real_malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : __real_malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size, const std::nothrow_t& t) noexcept {
  return operator new(size, t);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
