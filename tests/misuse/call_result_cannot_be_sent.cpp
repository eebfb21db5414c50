// expect: weft: .*result.* cannot be sent. leave it where it is with remote
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/call_check.hpp>

class stage {
 public:
  explicit stage(int width);

 private:
  int width_;
};
stage make_stage(int width);

static_assert(weft::detail::check_result<&make_stage>());
