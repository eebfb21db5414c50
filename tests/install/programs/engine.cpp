// SPDX-License-Identifier: BSL-1.0
// The engine of a program that compiles it by its own means.
#include <weft/src.hpp>
