// expect: weft: remote takes no retry, for whoever uses the reference meets the error
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/peer.hpp>

int made(int);

void use(weft::peer p) { auto r = p.remote<&made>(1, weft::retry{.attempts = 2}); }
