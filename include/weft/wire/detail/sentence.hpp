// SPDX-License-Identifier: BSL-1.0
// Sentences of static_assert that name types, members and numbers, where the compiler can print a
// computed text (C++26's static_assert, which GCC 14 has in C++20 too). Elsewhere a fixed sentence
// stands for them. Clang prints the condition before it, with the template arguments in place, so
// conditions are variable templates that read well:
//
//   WEFT_REQUIRE((argument_count_fits<F, Given>), "weft: wrong number of arguments.",
//                "weft: ", name, " takes ", takes, " arguments, ", given, " given.");
//
// Only weft's headers include this.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft::detail {

struct sentence {
  char text[600] = {};
  std::size_t length = 0;

  template <class... Pieces>
  constexpr explicit sentence(const Pieces&... pieces) {
    (add(pieces), ...);
  }
  constexpr std::size_t size() const { return length; }
  constexpr const char* data() const { return text; }

 private:
  constexpr void add(std::string_view piece) {
    for (const char c : piece) {
      if (length < sizeof text) text[length++] = c;
    }
  }
  constexpr void add(std::size_t number) {
    if (number >= 10) add(number / 10);
    const char digit = static_cast<char>('0' + number % 10);
    add(std::string_view(&digit, 1));
  }
};

template <class T>
constexpr const char* print_type_of() {
  return __PRETTY_FUNCTION__;
}

/// T as this compiler prints it, for sentences only.
template <class T>
constexpr std::string_view spelled() {
  const std::string_view printed = print_type_of<T>();
  const std::size_t begin = printed.find("T = ") + 4;
  return printed.substr(begin, printed.size() - begin - 1);
}

}  // namespace weft::detail

#if defined(__cpp_static_assert) && __cpp_static_assert >= 202306L
#define WEFT_REQUIRE(condition, fixed, ...)                                                        \
  static_assert(condition, ::weft::detail::sentence(__VA_ARGS__))
#elif !defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 14
#define WEFT_REQUIRE(condition, fixed, ...)                                                        \
  _Pragma("GCC diagnostic push")                                                                   \
      _Pragma("GCC diagnostic ignored \"-Wc++26-extensions\"") static_assert(                      \
          condition, ::weft::detail::sentence(__VA_ARGS__));                                       \
  _Pragma("GCC diagnostic pop") static_assert(true)
#else
#define WEFT_REQUIRE(condition, fixed, ...) static_assert(condition, fixed)
#endif
