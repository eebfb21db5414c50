// expect: weft: the function is a template argument: .*post<&f>\(\.\.\.\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

int twice(int x);

void use(weft::peer ps) { ps.post(&twice, 1); }
