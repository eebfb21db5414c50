// expect: weft: .*member.*\(counted from 0\).* is a C array of more than 16 elements
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/detail/aggregate.hpp>

struct record {
  int id;
  char name[64];
};

int main() { return static_cast<int>(weft::detail::member_count<record>()); }
