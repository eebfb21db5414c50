// expect: weft: .*union.* cannot be sent, because weft cannot know which of its members is alive
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/detail/aggregate.hpp>

union number {
  int i;
  float f;
};

int main() { return static_cast<int>(weft::detail::member_count<number>()); }
