// SPDX-License-Identifier: BSL-1.0
// What weft compiles once, for programs that define WEFT_SEPARATE_COMPILATION for every file. One
// file of the program includes this header, and needs no other line; or several files include its
// parts. A shared library that the program loads includes src_base.hpp in one file. CMake's target
// weft::weft contains such files.
#pragma once

#include <weft/src_base.hpp>
#include <weft/src_engine.hpp>
#include <weft/src_tensordict.hpp>
