// SPDX-License-Identifier: BSL-1.0
// Results that are references: what comes for them goes on to what they refer to.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/rpc/call_target.hpp>
#include <weft/rpc/detail/kept_result.hpp>
#include <weft/rref/detail/handle.hpp>
#include <weft/rref/rref.hpp>

#include <utility>

namespace weft::detail {

/// What is kept of a function's result that is a reference: that, which must hold something.
struct forwarding_address {
  explicit forwarding_address(intrusive_ptr<reference> r) noexcept : to(std::move(r)) {}
  template <class T>
  explicit forwarding_address(rref<T>&& r) : to(std::move(r.held_)) {
    if (!to) throw rpc_error(errc::invalid_argument, "the function returned an empty reference");
    if (to->broken()) throw rpc_error(to->broken());
  }

  intrusive_ptr<reference> to;
};

template <class T>
struct kept_result<rref<T>> {
  using held = forwarding_address;
  using referred = T;
};

/// Where a call on that object goes on; null if it is an object.
[[nodiscard]] inline const forwarding_address* forward_target(const void* object,
                                                              type_id type) noexcept {
  if (!(type == type_key<forwarding_address>)) return nullptr;
  return static_cast<const forwarding_address*>(object);
}

}  // namespace weft::detail
