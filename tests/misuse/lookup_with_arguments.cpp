// expect: weft: .*lookup takes a name and options only
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/published.hpp>

struct model {};

auto use(weft::peer p) { return p.lookup<model>("model", 3); }
