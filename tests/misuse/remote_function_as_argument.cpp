// expect: weft: the function is a template argument: remote<&f>\(\.\.\.\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/peer.hpp>

int twice(int x);

weft::rref<int> use(weft::peer p) { return p.remote(&twice, 1); }
