// expect: weft: this function returns nothing, so there is no object to refer to
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/peer.hpp>

void forget(int) {}

void use(weft::peer p) { static_cast<void>(p.remote<&forget>(2)); }
