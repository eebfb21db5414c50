// SPDX-License-Identifier: BSL-1.0
// The other translation unit of main.cpp and run.cpp.
#include "shared.hpp"

void other_file();

#ifdef TWINS_STATIC_PREPARE
static double prepare(double x) { return x * 2; }
#endif

void other_file() {
  twins::expose_shared();
#ifdef TWINS_STATIC_PREPARE
  weft::expose<&prepare>();
#endif
}
