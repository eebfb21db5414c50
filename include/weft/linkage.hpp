// SPDX-License-Identifier: BSL-1.0
// What is compiled once with the engine, and what a process has once.
//
// With WEFT_SEPARATE_COMPILATION, the engine is compiled once: in the one file of the program that
// includes <weft/src.hpp>, or in the CMake target weft::compiled. Without it, each file that
// includes <weft/run.hpp> compiles the engine. WEFT_DECL stands before the engine's entries.
#pragma once

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
