// SPDX-License-Identifier: BSL-1.0
// Rows "compile.*": what including and using weft costs the compiler.
#pragma once

#include "process.hpp"

#include <string>

namespace bench {

/// What a user's project links: weft::header_only, or weft::weft, which is compiled elsewhere.
enum class engine_is : bool { in_headers, compiled };
/// What the compiler knows before it reads the file: nothing, or compile/precompiled.hpp, whose own
/// time does not count.
enum class knows : bool { nothing, precompiled };

/// Compiles bench/compile/<file> with the compiler and flags that this program was built with, but
/// without its precompiled header and compiler cache: "seconds".
figures compile(const std::string& file, engine_is engine, knows before);

/// README's first program in an empty folder, by README's lines: configured and built by CMake, with
/// the engine, on two cores ("seconds"); built again after a change of its file ("again"), and as much
/// for compile/first_plain.cpp ("plain").
figures first_program();

}  // namespace bench
