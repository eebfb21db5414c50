// expect: weft: .*c10::Device.* no codec.*its name
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

#include <ATen/ATen.h>

at::Tensor f(at::Tensor x, at::Device on);

static_assert(weft::detail::check_declaration<&f>());
