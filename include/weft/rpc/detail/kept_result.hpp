// SPDX-License-Identifier: BSL-1.0
// What stays of a result where it was made.
#pragma once

#include <weft/rpc/function.hpp>
#include <weft/rpc/fwd.hpp>

namespace weft::detail {

/// Of a function that returns R: as what it is kept, and what a reference to it refers to. A result
/// that is a reference itself says otherwise (weft/rref/detail/forwarding_address.hpp).
template <class R>
struct kept_result {
  using held = R;
  using referred = R;
};
/// What `remote<F>` gives.
template <auto F>
using remote_reference = rref<typename kept_result<typename function<F>::result>::referred>;

}  // namespace weft::detail
