// expect: weft: post does not take retry, because no reply says whether it failed; use call or start
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>
#include <weft/rpc/retry.hpp>

void note(int);

void use(weft::peer p) { p.post<&note>(1, weft::retry{}); }
