// expect: weft: the function is a template argument: remote<&f>\(\.\.\.\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

struct thing {
  int method(int);
};

weft::rref<int> use(weft::rref<thing> r) { return r.remote(&thing::method, 1); }
