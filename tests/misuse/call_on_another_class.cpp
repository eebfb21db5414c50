// expect: weft: .*(is neither a member of|is a member of T, or takes T&)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/call_check.hpp>

struct encoder {};
struct stage {
  int width() const;
};

static_assert(weft::detail::check_object_call<&stage::width, encoder>());
