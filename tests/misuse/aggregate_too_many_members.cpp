// expect: weft: .* has more than 32 members
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/detail/aggregate.hpp>

struct wide {
  int a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2,
      c3, c4, c5, c6, c7, c8, c9, d0, d1, d2;
};

int main() { return static_cast<int>(weft::detail::member_count<wide>()); }
