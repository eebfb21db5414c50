// SPDX-License-Identifier: BSL-1.0
// A type's name as this compiler spells it: for error texts, never for identity; and what of it all
// compilers spell alike.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft::detail {

template <class T>
consteval std::string_view decorated_name() {
  return __PRETTY_FUNCTION__;
}

template <class T>
consteval std::string_view type_name() {
  constexpr std::string_view sample = decorated_name<int>();
  constexpr std::size_t before = sample.rfind("int");
  constexpr std::size_t after = sample.size() - before - 3;
  constexpr std::string_view whole = decorated_name<T>();
  return whole.substr(before, whole.size() - before - after);
}

/// What stands behind the last "::"; nothing if a template's arguments are in it, or no identifier.
consteval std::string_view last_name(std::string_view of) {
  if (of.find('<') != std::string_view::npos) return {};
  const std::size_t colons = of.rfind("::");
  if (colons != std::string_view::npos) of.remove_prefix(colons + 2);
  for (const char c : of) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!letter && (c < '0' || c > '9')) return {};
  }
  return of;
}

/// "ns::boxed<a<b>>" without "<a<b>>"; nothing if it does not end so.
consteval std::string_view without_arguments(std::string_view of) {
  if (!of.ends_with('>')) return {};
  std::size_t open = 0;
  for (std::size_t at = of.size(); at-- > 0;) {
    if (of[at] == '>') ++open;
    if (of[at] == '<') --open;
    if (open == 0) return of.substr(0, at);
  }
  return {};
}

}  // namespace weft::detail
