// SPDX-License-Identifier: BSL-1.0
// Rows "compile.*": what including and using weft costs the compiler.
#pragma once

#include "process.hpp"

#include <string>

namespace bench {

/// Compiles bench/compile/<file> with the compiler and flags that this program was built with, but
/// no precompiled header and no compiler cache: "seconds".
figures compile(const std::string& file);

}  // namespace bench
