// expect: weft: .*member.*\(counted from 0\).* is a union, and weft cannot know .* use std::variant
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/detail/aggregate.hpp>

struct value {
  int kind;
  union {
    int i;
    float f;
  };
};

int main() { return static_cast<int>(weft::detail::member_count<value>()); }
