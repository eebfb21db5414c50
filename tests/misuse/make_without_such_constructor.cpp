// expect: weft: .* has no constructor for these arguments
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/call_check.hpp>

#include <string>

class stage {
 public:
  explicit stage(int width);

 private:
  int width_;
};

static_assert(weft::detail::check_make<stage, std::string>());
