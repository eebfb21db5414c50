// expect: weft: a weft::rref is no pointer: .*co_await r\.call<&T::member>
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

struct stage {
  int width() const;
};

int use(weft::rref<stage> r) { return r->width(); }
