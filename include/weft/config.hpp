// SPDX-License-Identifier: BSL-1.0
// Checks the compiler. If it does not fit, an #error says in one sentence what weft needs.
#pragma once

#include <weft/linkage.hpp>
#include <weft/version.hpp>

#if defined(__clang__)
#if __clang_major__ < 17 && !defined(__apple_build_version__)
#error "weft needs Clang 17 or newer (or GCC 13 or newer): compile with clang++-19, for example."
#endif
#elif defined(__GNUC__) && __GNUC__ < 13
#error "weft needs GCC >= 13 (12 destroys temporaries in co_await twice): compile with clang++-19."
#endif

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "weft needs C++20: compile with -std=c++20."
#endif
