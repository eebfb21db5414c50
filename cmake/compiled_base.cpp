// SPDX-License-Identifier: BSL-1.0
// What every program with weft needs, compiled once (WeftCompiled.cmake).
#include <weft/src_base.hpp>
