// SPDX-License-Identifier: BSL-1.0
// What weft needs of the compiler, said in one sentence where it is missing.
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

// WEFT_SEPARATE_COMPILATION: the engine is compiled once, by one file of the program that includes
// <weft/src.hpp> or by the CMake target weft::compiled; else by each file that includes
// <weft/run.hpp>. WEFT_DECL stands before the engine's entries.
#if defined(WEFT_SEPARATE_COMPILATION)
#define WEFT_DECL
#else
#define WEFT_DECL inline
#endif

// WEFT_PROCESS_WIDE stands before what a process has once: shared libraries see it, also where all
// else is hidden (-fvisibility=hidden).
#define WEFT_PROCESS_WIDE [[gnu::visibility("default")]]

// Files of a program that disagree about it do not link: what is thread local in one of them is not
// in the other. Two names, because some linkers see it in one order of the files only.
namespace weft::every_file_agrees_on_WEFT_SEPARATE_COMPILATION {
#if defined(WEFT_SEPARATE_COMPILATION)
[[gnu::used]] inline thread_local int compiled = 1;
[[gnu::used]] inline int in_headers = 1;
#else
[[gnu::used]] inline int compiled = 1;
[[gnu::used]] inline thread_local int in_headers = 1;
#endif
}  // namespace weft::every_file_agrees_on_WEFT_SEPARATE_COMPILATION
