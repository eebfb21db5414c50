// SPDX-License-Identifier: BSL-1.0
// Functions that look at a referenced object, a const T&, in the form of `detail::exposed<f>`:
// their requests hold one value less than those to a peer, so they have a name of their own.
#pragma once

#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/detail/object_parameters.hpp>
#include <weft/rpc/function.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::detail {

template <auto F>
struct looking : exposed<F> {
  using object = typename object_parameters<F>::object;
  using parameters = typename object_parameters<F>::parameters;
  using arguments = typename object_parameters<F>::arguments;
  static std::string_view name() {
    static const std::string& found =
        *new std::string(std::string(function_name<F>()) + " of an object");
    return found;
  }
  static std::uint64_t id() {
    static const std::uint64_t found = name_hash(name());
    return found;
  }
  static constexpr std::uint32_t signature =
      signature_of<std::conditional_t<describable<typename function<F>::result>,
                                      typename function<F>::result, opaque_result>,
                   parameters>::value;
  static auto call(invocation& c, arguments&& all) {
    return std::apply(
        [&c](auto&&... a) -> decltype(auto) {
          return exposed<F>::injected(c, std::as_const(object_of<object>(c)), std::move(a)...);
        },
        std::move(all));
  }
};

/// Whether a peer can be given all that such a function takes, the object included.
template <class Arguments>
inline constexpr bool all_encodable = false;
template <class... A>
inline constexpr bool all_encodable<std::tuple<A...>> = (encodable<A> && ...);

/// What an rref calls for F.
template <auto F>
using on_object = std::conditional_t<object_parameters<F>::looks, std::type_identity<looking<F>>,
                                     std::type_identity<exposed<F>>>::type;

}  // namespace weft::detail
