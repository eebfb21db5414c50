// expect: weft: .*member.*\(counted from 0\).* is a reference, which cannot be sent. store a value
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/detail/aggregate.hpp>

#include <string>

struct request {
  int id;
  const std::string& name;
};

int main() { return static_cast<int>(weft::detail::member_count<request>()); }
