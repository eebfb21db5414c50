// SPDX-License-Identifier: BSL-1.0
// Cuts a function's name out of what the compiler prints, for sentences, and judges whether it is a
// name at all. Compilers differ in it (Clang leaves template arguments out), so nothing that
// travels depends on it: rpc/detail/spelled_name.hpp.
#pragma once

#include <weft/wire/detail/sentence.hpp>

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

// Where the template arguments that begin at `name[at]`, a '<', end: behind their '>'; `npos` if
// they do not. Only brackets count: an argument that is an operator or a shift may mislead it.
constexpr std::size_t behind_arguments(std::string_view name, std::size_t at) noexcept {
  std::size_t depth = 0;
  for (; at < name.size(); ++at) {
    if (name[at] == '<') ++depth;
    if (name[at] == '>' && --depth == 0) return at + 1;
  }
  return std::string_view::npos;
}

// Identifiers, with template arguments or without, joined by "::", nothing else. Bytes above 127
// are letters of other scripts.
constexpr bool is_plain_name(std::string_view name) noexcept {
  bool begin = true;  // of an identifier
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<' && !begin) {
      if (name.substr(0, i).ends_with("operator")) return false;  // <, <<, <=>
      i = behind_arguments(name, i);
      if (i == name.size()) return true;
      if (i == std::string_view::npos || name[i] != ':') return false;
    }
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

// The last identifier of a plain name, without template arguments.
constexpr std::string_view last_part(std::string_view name) noexcept {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') {
      const std::size_t end = behind_arguments(name, i);
      if (end >= name.size()) return name.substr(begin, i - begin);
      i = end;
    }
    if (name[i] == ':') begin = i + 1;
  }
  return name.substr(begin);
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

template <auto F, class T, class... Args>
struct name_of<F, constructor_t<T, Args...>> {
  static constexpr bool allowed = true;
  static constexpr std::string_view value() { return cut_name(print_type<T>()); }
  static constexpr bool plain = is_plain_name(value());
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
                 "weft: this function has no name that all compilers agree on (it is a lambda, "
                 "an operator, or in an anonymous namespace or a function); give it one: "
                 "weft::named<\"name\", &f>.",
                 "weft: ", name_of<F>::value(),
                 " is no name that all compilers agree on (a lambda, an operator, or "
                 "something in an anonymous namespace or a function); give it one: "
                 "weft::named<\"name\", &f>.");
  }
  return true;
}

}  // namespace weft::detail
