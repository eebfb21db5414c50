// SPDX-License-Identifier: BSL-1.0
// peer::remote and peer::make: calls whose result stays where it is made. weft/rpc/peer.hpp
// declares and documents them.
#pragma once

#include <weft/rpc/detail/call_check.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/detail/called.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rref/rref.hpp>

#include <type_traits>
#include <utility>

namespace weft {

template <auto F, class... Args>
auto peer::remote(Args&&... args) const -> detail::remote_reference<F> {
  static_assert(detail::check_call<F, Args...>());
  static_assert(!detail::wants_expected<Args...>,
                "weft: remote does not take as_expected, because its errors appear where the "
                "reference is used");
  static_assert(!detail::wants_retry<Args...>,
                "weft: remote does not take retry, because its errors appear where the reference "
                "is used; use call, or retry there");
  return detail::remote_reference<F>(
      *me_, detail::remote_call<detail::called<detail::exposed<F>, Args...>>(
                *me_, rank_, nullptr, std::forward<Args>(args)...));
}

template <class T, class... Args>
rref<T> worker::make(Args&&... args) {
  return peer(rank()).template make<T>(std::forward<Args>(args)...);
}

template <class T, class... Args>
rref<T> peer::make(Args&&... args) const {
  static_assert(detail::check_make<T, Args...>());
  using made = detail::exposed<constructor<T, std::decay_t<Args>...>>;
  return rref<T>(*me_,
                 detail::remote_call<made>(*me_, rank_, nullptr, std::forward<Args>(args)...));
}

}  // namespace weft
