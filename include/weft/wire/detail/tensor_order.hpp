// SPDX-License-Identifier: BSL-1.0
// For ThreadSanitizer alone: whoever drops a tensor's storage does so before its memory is used
// anew. libtorch's reference count sees to that, but a libtorch compiled without ThreadSanitizer
// does not tell it so.
#pragma once

#include <weft/core/detail/thread_sanitizer.hpp>

#include <c10/core/Storage.h>

#if defined(WEFT_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace weft::detail {

/// Called before a reference to `storage` is dropped by a thread that read its memory.
inline void before_drop([[maybe_unused]] const c10::Storage& storage) noexcept {
#if defined(WEFT_THREAD_SANITIZER)
  if (storage) __tsan_release(storage.data_ptr().get_context());
#endif
}

/// Called by the deleter of a storage with that context, before it gives the memory away.
inline void after_last_drop([[maybe_unused]] void* context) noexcept {
#if defined(WEFT_THREAD_SANITIZER)
  __tsan_acquire(context);
#endif
}

}  // namespace weft::detail
