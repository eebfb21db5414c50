// expect: weft: remote does not take retry, because its errors appear where the reference is used
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/peer.hpp>

int made(int);

void use(weft::peer p) { auto r = p.remote<&made>(1, weft::retry{.attempts = 2}); }
