// SPDX-License-Identifier: BSL-1.0
// weft's engine, compiled once (WeftCompiled.cmake).
#include <weft/src_engine.hpp>
