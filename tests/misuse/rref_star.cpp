// expect: weft: a weft::rref is no pointer: .*co_await r\.call<&T::member>
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

int use(weft::rref<int> r) { return *r; }
