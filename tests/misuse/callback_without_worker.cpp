// expect: weft: a callback's function runs at a worker.*weft::callback<void\(int\)>\(me, f\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/callback.hpp>

weft::callback<void(int)> use() {
  return weft::callback<void(int)>([](int) {});
}
