// expect: weft: .*no name that all compilers agree on.*give it one: weft::named
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/identity.hpp>

struct point {
  int x;
};
point operator+(point a, point b);

int main() { return static_cast<int>(weft::function_id<&operator+ >()); }
