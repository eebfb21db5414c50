// SPDX-License-Identifier: BSL-1.0
// weft's tensordicts, compiled once (WeftCompiled.cmake).
#include <weft/src_tensordict.hpp>
