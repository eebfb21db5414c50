// SPDX-License-Identifier: BSL-1.0
// Cuts a function's name out of what the compiler prints, and judges whether another compiler
// would print the same.
#pragma once

#include <weft/wire/detail/sentence.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace weft {

template <class T, class... Args>
struct constructor_t;

}  // namespace weft

namespace weft::detail {

// "... [with auto F = ns::f]" (GCC), "... [F = &ns::f]" (Clang). They return a plain pointer, for
// GCC explains a typedef such as string_view behind the name.
template <auto F>
constexpr const char* print_value() {
  return __PRETTY_FUNCTION__;
}
template <class F>
constexpr const char* print_type() {
  return __PRETTY_FUNCTION__;
}

constexpr std::string_view cut_name(std::string_view printed) noexcept {
  constexpr std::string_view mark = "F = ";
  const std::size_t begin = printed.find(mark) + mark.size();
  std::string_view name = printed.substr(begin, printed.size() - begin - 1);
  if (name.starts_with('&')) name.remove_prefix(1);
  return name;
}

// Identifiers joined by "::", nothing else. Bytes above 127 are letters of other scripts.
constexpr bool is_plain_name(std::string_view name) noexcept {
  bool begin = true;  // of an identifier
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                        static_cast<unsigned char>(c) > 127;
    if (letter || (digit && !begin)) {
      begin = false;
    } else if (c == ':' && !begin && i + 1 < name.size() && name[i + 1] == ':') {
      ++i;
      begin = true;
    } else {
      return false;
    }
  }
  return !begin;
}

constexpr std::string_view last_part(std::string_view name) noexcept {
  const std::size_t colon = name.rfind(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

template <class F>
inline constexpr bool is_callable_pointer =
    std::is_member_function_pointer_v<F> ||
    (std::is_pointer_v<F> && std::is_function_v<std::remove_pointer_t<F>>);

// What F names: `allowed` says whether such an F can be called at all, `plain` whether its name
// means the same everywhere, `value()` is the name.
template <auto F, class Type = std::remove_cv_t<decltype(F)>>
struct name_of {
  static constexpr bool allowed = is_callable_pointer<Type>;
  static constexpr std::string_view value() { return cut_name(print_value<F>()); }
  static constexpr bool plain = is_plain_name(value());
};

template <auto F, class Named>
  requires requires { Named::function; }
struct name_of<F, Named> {
  using type = std::remove_cv_t<decltype(Named::function)>;
  static constexpr bool allowed = is_callable_pointer<type>;
  static constexpr std::string_view value() { return Named::name(); }
  static constexpr bool plain = !value().empty();
};

// The name of the class, "::", and its last part again: the characters need a place of their own.
template <class T>
struct constructor_name {
  static constexpr std::string_view scope = cut_name(print_type<T>());
  static constexpr std::size_t size = scope.size() + 2 + last_part(scope).size();
  static constexpr std::array<char, size> text = [] {
    std::array<char, size> out{};
    std::size_t at = 0;
    for (const char c : scope) out[at++] = c;
    out[at++] = ':';
    out[at++] = ':';
    for (const char c : last_part(scope)) out[at++] = c;
    return out;
  }();
};

template <auto F, class T, class... Args>
struct name_of<F, constructor_t<T, Args...>> {
  static constexpr bool allowed = true;
  static constexpr std::string_view value() {
    return {constructor_name<T>::text.data(), constructor_name<T>::size};
  }
  static constexpr bool plain = is_plain_name(constructor_name<T>::scope);
};

// Conditions of the sentences below.
template <auto F>
inline constexpr bool is_a_function = name_of<F>::allowed;
template <auto F>
inline constexpr bool has_a_portable_name = name_of<F>::plain;

template <auto F>
consteval bool check_name() {
  if constexpr (!is_a_function<F>) {
    WEFT_REQUIRE((is_a_function<F>),
                 "weft: only a function or a member function can be called: give its address (&f), "
                 "or weft::named<\"name\", &f>.",
                 "weft: ", cut_name(print_value<F>()),
                 " is no function: give the address of a function or member function (&f), or "
                 "weft::named<\"name\", &f>.");
  } else {
    WEFT_REQUIRE((has_a_portable_name<F>),
                 "weft: this function has no name that all compilers agree on (it is a template, a "
                 "lambda, an operator, or in an anonymous namespace or a function); give it one: "
                 "weft::named<\"name\", &f>.",
                 "weft: ", name_of<F>::value(),
                 " is no name that all compilers agree on (a template, a lambda, an operator, or "
                 "something in an anonymous namespace or a function); give it one: "
                 "weft::named<\"name\", &f>.");
  }
  return true;
}

}  // namespace weft::detail
