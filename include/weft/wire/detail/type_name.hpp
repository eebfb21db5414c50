// SPDX-License-Identifier: BSL-1.0
// A type's name as this compiler spells it: for error texts only, never for identity.
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

}  // namespace weft::detail
