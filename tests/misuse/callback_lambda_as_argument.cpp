// expect: weft: .*must be a (weft::)?callback; make one from the function, at the worker.*\(me, f\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/callback.hpp>

int train(int steps, weft::callback<void(int)> told);

auto use(weft::peer p) {
  return p.call<&train>(100, [](int) {});
}
