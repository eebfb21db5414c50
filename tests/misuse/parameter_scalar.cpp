// expect: weft: .*c10::Scalar.* no codec.*send a number
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

#include <ATen/ATen.h>

at::Tensor f(at::Tensor x, at::Scalar by);

static_assert(weft::detail::check_declaration<&f>());
