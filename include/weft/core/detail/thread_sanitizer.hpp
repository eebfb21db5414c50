// SPDX-License-Identifier: BSL-1.0
// Defines WEFT_THREAD_SANITIZER where this is compiled with ThreadSanitizer.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define WEFT_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_THREAD_SANITIZER
#endif
#endif
