// expect: weft: the function is a template argument: post<&f>\(\.\.\.\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

struct thing {
  int method(int);
};

void use(weft::rref<thing> r) { r.post(&thing::method, 1); }
