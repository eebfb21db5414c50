// SPDX-License-Identifier: BSL-1.0
// The other translation unit of main.cpp.
#include <every_header.hpp>

int version_seen_by_other();
int version_seen_by_other() { return WEFT_VERSION; }
