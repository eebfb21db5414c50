// SPDX-License-Identifier: BSL-1.0
// The one main of every test program.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
