// SPDX-License-Identifier: BSL-1.0
// One of two translation units that include every header; the other is other.cpp.
#include <every_header.hpp>

int version_seen_by_other();

int main() { return version_seen_by_other() == WEFT_VERSION ? 0 : 1; }
