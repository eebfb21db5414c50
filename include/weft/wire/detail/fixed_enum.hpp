// SPDX-License-Identifier: BSL-1.0
// Enums of which every number is a value.
#pragma once

#include <weft/wire/detail/sentence.hpp>

#include <type_traits>

namespace weft::detail {

/// With an underlying type that its declaration names, or scoped: every value of that type is one
/// of the enum's. Only of those may a peer say which.
template <class T>
concept fixed_enum = std::is_enum_v<T> && requires { T{0}; };

template <class T>
inline constexpr bool has_an_underlying_type = fixed_enum<T>;

/// An error, in a sentence, if T is another enum.
template <class T>
consteval void refuse_open_enum() {
  WEFT_REQUIRE((has_an_underlying_type<T>),
               "weft: cannot send an enum without an underlying type: not every number is one of "
               "its values; write 'enum name : int' or 'enum class name'.",
               "weft: cannot send ", spelled<T>(),
               ", an enum without an underlying type: not every number is one of its values; write "
               "'enum name : int' or 'enum class name'.");
}

}  // namespace weft::detail
