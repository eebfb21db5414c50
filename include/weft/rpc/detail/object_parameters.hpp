// SPDX-License-Identifier: BSL-1.0
// What a function takes when it is called through an rref. Its first parameter may be a const T&
// there, which on a peer is an argument: then the request holds another list of values.
#pragma once

#include <weft/rpc/function.hpp>

#include <tuple>
#include <type_traits>

namespace weft::detail {

template <class Parameters>
struct const_object_first {
  using object = void;
};
template <class T, class... P>
struct const_object_first<std::tuple<const T&, P...>> {
  using object = T;
  using parameters = std::tuple<P...>;
  using arguments = typename values<parameters>::type;
};

/// Its object, and what travels; as `function<F>`, but for those that look at a const T&.
template <auto F>
struct object_parameters {
  using object = typename function<F>::object;
  using parameters = typename function<F>::parameters;
  using arguments = typename function<F>::arguments;
  static constexpr bool looks = false;
};
template <auto F>
  requires(std::is_void_v<typename function<F>::object> &&
           !std::is_void_v<typename const_object_first<typename function<F>::parameters>::object>)
struct object_parameters<F> : const_object_first<typename function<F>::parameters> {
  static constexpr bool looks = true;
};

}  // namespace weft::detail
