// SPDX-License-Identifier: BSL-1.0
// Allocations of simulated workers fail where their world says so, but for libtorch's own: some of
// its functions must not throw, and allocate.
#include <weft/sim/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>

#include <dlfcn.h>
#include <unwind.h>

namespace {

/// Who called operator new.
struct caller {
  std::uintptr_t returns_to = 0;
  bool reached = false, is_libtorch = false;

  /// The first one that is not in the standard library.
  static _Unwind_Reason_Code look(_Unwind_Context* at, void* out) {
    caller& of = *static_cast<caller*>(out);
    of.reached = of.reached || _Unwind_GetIP(at) == of.returns_to;
    if (!of.reached) return _URC_NO_REASON;
    Dl_info where;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of code
    if (dladdr(reinterpret_cast<void*>(_Unwind_GetIP(at)), &where) == 0) return _URC_END_OF_STACK;
    const auto is_in = [file = std::string_view(where.dli_fname)](std::string_view library) {
      return file.find(library) != std::string_view::npos;
    };
    if (is_in("libstdc++")) return _URC_NO_REASON;
    of.is_libtorch = is_in("libtorch") || is_in("libc10");
    return _URC_END_OF_STACK;
  }
};

void* allocate(std::size_t size, void* returns_to) noexcept {
  if (weft::sim::memory::fails()) {
    caller by{reinterpret_cast<std::uintptr_t>(returns_to)};
    _Unwind_Backtrace(&caller::look, &by);
    if (!by.is_libtorch) return nullptr;
  }
  return std::malloc(size == 0 ? 1 : size);
}
void* allocate_or_throw(std::size_t size, void* returns_to) {
  if (void* p = allocate(size, returns_to)) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate_or_throw(size, __builtin_return_address(0));
}
void* operator new[](std::size_t size) {
  return allocate_or_throw(size, __builtin_return_address(0));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, __builtin_return_address(0));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, __builtin_return_address(0));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
