// SPDX-License-Identifier: BSL-1.0
// The two functions by which a user's type is sent: whether both are there, or something like one
// of them, which is a slip.
#pragma once

#include <weft/wire/detail/sentence.hpp>

#include <concepts>
#include <type_traits>

namespace weft {
class writer;
class reader;
}  // namespace weft

namespace weft::detail {

template <class T>
concept has_own_encode = requires(writer& w, const T& value) { weft_encode(w, value); };
template <class T>
concept has_own_decode = requires(reader& r) {
  { weft_decode(r, std::type_identity<T>{}) } -> std::same_as<T>;
};
template <class T>
concept own_pair = has_own_encode<T> && has_own_decode<T>;

/// Something is there that is meant as one of the pair.
template <class T>
concept part_of_a_pair =
    has_own_encode<T> || requires(writer& w, T& value) { weft_encode(w, value); } ||
    requires(reader& r) { weft_decode(r, std::type_identity<T>{}); } ||
    requires(reader& r, T& value) { weft_decode(r, value); };

/// Sent by its members, such a type would send what its encoder was to leave out.
template <class T>
concept half_a_pair =
    (std::is_class_v<T> || std::is_union_v<T>) && part_of_a_pair<T> && !own_pair<T>;

template <class T>
inline constexpr bool has_both_of_its_pair = !half_a_pair<T>;

/// An error, in a sentence, if T has one function of the pair without the other.
template <class T>
consteval void refuse_half_a_pair() {
  WEFT_REQUIRE((has_both_of_its_pair<T>),
               "weft: a type has weft_encode or weft_decode, but not both, or one of them takes or "
               "returns another type, such as a base class; declare both next to the type T: void "
               "weft_encode(weft::writer&, const "
               "T&); T weft_decode(weft::reader&, std::type_identity<T>);",
               "weft: ", spelled<T>(),
               " has weft_encode or weft_decode, but not both, or one of them takes or returns "
               "another type, such as a base class; declare both next to the type T: void "
               "weft_encode(weft::writer&, const T&); T "
               "weft_decode(weft::reader&, std::type_identity<T>);");
}

}  // namespace weft::detail
