// expect: weft: post does not take retry
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

struct counter {
  void add(int n);
};

void use(weft::rref<counter> r) { r.post<&counter::add>(1, weft::retry{}); }
