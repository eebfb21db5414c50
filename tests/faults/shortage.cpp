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

bool fails() noexcept { return mine && mine->fails(); }
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
void thread_memory::lack(long nth, long further) noexcept {
  hit_ = false;
  then_ = further;
  left_ = nth;
}
bool thread_memory::suffice() noexcept {
  left_ = 0;
  return hit_;
}
bool thread_memory::fails() noexcept {
  const long left = left_;
  if (left == 0) return false;
  if (left > 1) {
    // Unless it was told otherwise meanwhile.
    long expected = left;
    left_.compare_exchange_strong(expected, left - 1);
    return false;
  }
  hit_ = true;
  if (then_ == 0) {
    long expected = left;
    left_.compare_exchange_strong(expected, 0);
  } else {
    --then_;
  }
  const auto spared = spared_.load();
  return !(spared && spared());
}

shortage::shortage(long nth, long further) { arm(nth, further); }
shortage::~shortage() { disarm(); }
bool shortage::struck() { return thread_memory::here().lacked(); }
void shortage::arm(long nth, long further) { thread_memory::here().lack(nth, further); }
void shortage::disarm() { thread_memory::here().suffice(); }

}  // namespace weft::testing

extern "C" {
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
