// SPDX-License-Identifier: BSL-1.0
// Refuses, in a sentence, calls that cannot be made: wrong arguments, and declarations whose
// parameters cannot cross to another process.
//
// Each check is consteval and always true; it is called as `static_assert(check_call<...>())` or in
// a constant initialiser. A failed check is the first error that the compiler prints.
#pragma once

#include <weft/rpc/call_options.hpp>
#include <weft/rpc/detail/object_parameters.hpp>
#include <weft/rpc/detail/refusals.hpp>
#include <weft/rpc/function.hpp>

#include <cstddef>
#include <type_traits>

namespace weft::detail {

/// peer.call<F>(args...), options included in Args (as deduced for forwarding references).
template <auto F, class... Args>
consteval bool check_call() {
  static_assert(check_name<F>());
  if constexpr (name_of<F>::allowed && name_of<F>::plain) {
    WEFT_REQUIRE(
        (called_on_a_peer<F>),
        "weft: a member function, or one whose first parameter is T&, needs an object: "
        "call it through a weft::rref<T>; or, if T& is meant as an argument, take it by "
        "value or const T& and return the result.",
        "weft: ", name_of<F>::value(), " needs an object of type ",
        spelled<typename function<F>::object>(),
        ": call it through a weft::rref to one; or, if the object is meant as an argument, take "
        "it by value or const reference and return the result.");
    if constexpr (called_on_a_peer<F>) {
      static_assert(check_declaration<F>());
      static_assert(
          check_arguments<F, typename function<F>::arguments,
                          is_call_option<std::remove_cvref_t<Args>>...>(types<Args...>{}));
    }
  }
  return true;
}

/// rref<T>.call<F>(args...)
template <auto F, class T, class... Args>
consteval bool check_object_call() {
  static_assert(check_name<F>());
  if constexpr (name_of<F>::allowed && name_of<F>::plain) {
    using on = object_parameters<F>;
    using object = typename on::object;
    WEFT_REQUIRE((called_on_an_object<F, T, object>),
                 "weft: a function called through a weft::rref<T> is a member of T, or takes T& or "
                 "const T& as its first parameter (after an injected one).",
                 "weft: ", name_of<F>::value(), " is neither a member of ", spelled<T>(),
                 ", nor does it take a ", spelled<T>(),
                 "& or const & as its first parameter (after an injected one).");
    if constexpr (called_on_an_object<F, T, object>) {
      static_assert(check_declaration<F, object, typename on::parameters>());
      static_assert(
          check_arguments<F, typename on::arguments, is_call_option<std::remove_cvref_t<Args>>...>(
              types<Args...>{}));
    }
  }
  return true;
}

/// That the result of F can be sent, as call and start need it (remote does not).
template <auto F>
consteval bool check_result() {
  using result = typename function<F>::result;
  if constexpr (refused_by_structure<result>) {
    refuse_structure<typename undescribed<result>::type>();
  } else if constexpr (result_can_be_sent<F, result>) {
    if constexpr (!std::is_void_v<result>) require_encodable<result>();
  } else {
    WEFT_REQUIRE((result_can_be_sent<F, result>),
                 "weft: this result cannot be sent; leave it where it is with remote<&f>(...), or "
                 "return a value that weft can encode.",
                 "weft: the result of ", name_of<F>::value(), ", ", spelled<result>(),
                 ", cannot be sent; leave it where it is with remote<&f>(...), or return a value "
                 "that weft can encode.");
  }
  return true;
}

/// peer.make<T>(args...)
template <class T, class... Args>
consteval bool check_make() {
  static_assert(check_name<constructor<T, Args...>>());
  if constexpr (name_of<constructor<T, Args...>>::plain) {
    static_assert(check_declaration<constructor<T, Args...>>());
    WEFT_REQUIRE((can_be_made_from<T, typename constructor_argument<Args>::type...>),
                 "weft: this type has no constructor for these arguments.", "weft: ", spelled<T>(),
                 " has no constructor for these arguments.");
  }
  return true;
}

}  // namespace weft::detail
