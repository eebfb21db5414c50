// expect: weft: the function is a template argument: .*start<&f>\(\.\.\.\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

int twice(int x);

void use(weft::peer ps) { auto f = ps.start(&twice, 1); }
