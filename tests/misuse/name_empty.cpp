// expect: weft: .*no name that all compilers agree on.*give it one: weft::named
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/identity.hpp>

int half(int x);

int main() { return static_cast<int>(weft::function_id<weft::named<"", &half>>()); }
