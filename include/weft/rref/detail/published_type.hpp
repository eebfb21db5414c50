// SPDX-License-Identifier: BSL-1.0
// The name of a type as all compilers find it, for objects that are published.
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/identity.hpp>
#include <weft/wire/detail/sentence.hpp>

#include <string>
#include <string_view>
#include <type_traits>

namespace weft::detail {

/// As far as the compiler's own spelling tells; `published_type` knows.
template <class T>
inline constexpr bool has_a_portable_type_name =
    std::is_arithmetic_v<T> || is_plain_name(spelled<T>());

/// me.publish("model", object): false, so that whoever writes it reads how it is done.
template <class T>
inline constexpr bool published_is_an_rref = false;

template <class T>
consteval bool check_published() {
  static_assert(std::is_same_v<T, std::remove_cvref_t<T>>,
                "weft: an object is published, and looked up, as its own type, without const.");
  WEFT_REQUIRE((has_a_portable_type_name<T>),
               "weft: this type has no name that all compilers agree on (it is a lambda, or in an "
               "anonymous namespace or a function); objects of it cannot be published or looked "
               "up: put it into a namespace.",
               "weft: ", spelled<T>(),
               " is no name that all compilers agree on (a lambda, or something in an anonymous "
               "namespace or a function); objects of it cannot be published or looked up: put it "
               "into a namespace.");
  return true;
}

/// Throws rpc_error invalid_argument if T has none: a part of it is a lambda, say.
template <class T>
const std::string& published_type() {
  static const std::string& found = *new std::string(spelled_class<T>());
  if (found.empty()) {
    throw rpc_error(errc::invalid_argument,
                    "'" + std::string(spelled<T>()) +
                        "' has no name that all compilers agree on (a part of it is a lambda or a "
                        "local or unnamed class); objects of it cannot be published or looked up");
  }
  return found;
}

}  // namespace weft::detail
