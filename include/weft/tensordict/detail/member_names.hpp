// SPDX-License-Identifier: BSL-1.0
// The names of the members of a plain struct, as the program has them.
#pragma once

#include <weft/wire/detail/aggregate.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

namespace weft::detail {

#if defined(__clang__)  // an address needs no object
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif
template <class T>
struct held_struct {
  T value;
};
/// Never made: addresses of its members are template arguments.
template <class T>
extern held_struct<T> no_struct;

/// Clang 17 takes an address of a member as a template argument only inside of a struct.
template <class T>
struct member_address {
  T* to;
};
template <class T>
member_address(T*) -> member_address<T>;

template <auto Address>
consteval auto printed_address() {  // a named type would be spelled out at the text's end
  return std::string_view(__PRETTY_FUNCTION__);
}
template <class T, std::size_t I>
consteval std::string_view member_name() {
  constexpr std::string_view text =
      printed_address<member_address{std::addressof(std::get<I>(members(no_struct<T>.value)))}>();
  // The last identifier: "… &no_struct.value.obs}]", "… held_struct<step>::value.step::obs)}]".
  std::size_t end = text.size();
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  while (end > 0 && !in_name(text[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && in_name(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

/// In the order of the members.
template <class T>
inline constexpr auto member_names = []<std::size_t... I>(std::index_sequence<I...>) {
  return std::array<std::string_view, sizeof...(I)>{member_name<T, I>()...};
}(std::make_index_sequence<member_count<T>()>());

}  // namespace weft::detail
