// expect: weft: .*base class.*\(counted from 0\).* has members. make it a member
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/detail/aggregate.hpp>

struct point {
  int x;
  int y;
};
struct labelled : point {
  char label;
};

int main() { return static_cast<int>(weft::detail::member_count<labelled>()); }
