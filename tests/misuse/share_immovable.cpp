// expect: weft: .*share moves its argument.*make<T>\(\.\.\.\) builds it in place
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

struct stage {
  stage() = default;
  stage(const stage&) = delete;
};

weft::rref<stage> use(weft::worker& me) { return me.share(stage()); }
