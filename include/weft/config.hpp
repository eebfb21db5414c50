// SPDX-License-Identifier: BSL-1.0
// Checks the compiler. If it does not fit, an #error says in one sentence what weft needs.
#pragma once

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

// With WEFT_SEPARATE_COMPILATION, the engine is compiled once: in the one file of the program that
// includes <weft/src.hpp>, or in the CMake target weft::compiled. Without it, each file that
// includes <weft/run.hpp> compiles the engine. WEFT_DECL stands before the engine's entries.
#if defined(WEFT_SEPARATE_COMPILATION)
#define WEFT_DECL  // a body behind it keeps no state: each shared library has its own
#else
#define WEFT_DECL inline
#endif

// WEFT_PROCESS_WIDE stands before each thing that a process has once. Shared libraries see it, even
// if -fvisibility=hidden hides all else.
#define WEFT_PROCESS_WIDE [[gnu::visibility("default")]]

// If two files of a program disagree about WEFT_SEPARATE_COMPILATION, they do not link: a variable
// is thread local in only one of them. There are two variables, because some linkers notice that
// only in one order of the files.
namespace weft::every_file_agrees_on_WEFT_SEPARATE_COMPILATION {
#if defined(WEFT_SEPARATE_COMPILATION)
[[gnu::used]] inline thread_local int compiled = 1;
[[gnu::used]] inline int in_headers = 1;
#else
[[gnu::used]] inline int compiled = 1;
[[gnu::used]] inline thread_local int in_headers = 1;
#endif
}  // namespace weft::every_file_agrees_on_WEFT_SEPARATE_COMPILATION
