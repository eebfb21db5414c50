// SPDX-License-Identifier: BSL-1.0
// Identity of a function: its qualified source name and the 64-bit hash of it.
//
//   &geo::area                      "geo::area"
//   &geo::shape::scale              "geo::shape::scale"      (static and virtual members too)
//   &geo::sum<int>                  "geo::sum<int>"          (specialisations, members of them)
//   weft::named<"area/2", &f<int>>  "area/2"
//   weft::constructor<geo::shape, int>   "geo::shape::shape"
//
// The name comes from the program, where all compilers spell it by one convention
// (rpc/detail/mangled_name.hpp). Inline namespaces are part of it; an extern "C" function has no
// namespace. Lambdas, operators, anonymous namespaces and local classes are refused in a sentence,
// because no two compilers agree on their names. The compiler refuses them where its printed name
// shows them. Else (as template arguments, for example) a run refuses to begin.
//
// Overloads share one name. So do static functions of two source files. If two functions of a
// program have the same name and signature, a run refuses to begin (rpc/table.hpp).
//
// Includes neither Asio nor libtorch; compiles with GCC 12 and Clang 14, so that one table of
// literal ids proves that compilers agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

/// Text as a template argument.
template <std::size_t N>
struct fixed_string {
  char text[N];

  consteval fixed_string(const char (&literal)[N]) {  // NOLINT: implicit, "..." is the notation
    for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
  }
  constexpr std::string_view view() const noexcept { return {text, N - 1}; }
};

template <fixed_string Name, auto F>
struct named_t {
  static constexpr auto function = F;
  static constexpr std::string_view name() noexcept { return Name.view(); }
};

/// F under a name of your choice, to be used in place of `&f`. Constant, as everything here.
///
///   co_await p.call<weft::named<"area/2", &f<int>>>(3);
template <fixed_string Name, auto F>
inline constexpr named_t<Name, F> named{};

template <class T, class... Args>
struct constructor_t {};

/// The constructor of a T from Args (decayed), to be used in place of `&f`. The result is a T that
/// stays where it is made.
template <class T, class... Args>
inline constexpr constructor_t<T, Args...> constructor{};

}  // namespace weft

#include <weft/rpc/detail/printed_name.hpp>
#include <weft/rpc/detail/spelled_name.hpp>

namespace weft {

/// The qualified source name of F, a pointer to a function or member function, a `named` or a
/// `constructor`. Lives as long as the program. Any thread. If F has no name, the compiler refuses
/// it in a sentence.
template <auto F>
[[nodiscard]] std::string_view function_name() {
  static_assert(detail::check_name<F>());
  return detail::spelling_of<F>().text;
}

/// 64-bit FNV-1a of a name, as the frame header carries it.
constexpr std::uint64_t name_hash(std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// The id of F on the wire. Any thread.
template <auto F>
[[nodiscard]] std::uint64_t function_id() {
  static const std::uint64_t id = name_hash(function_name<F>());
  return id;
}

}  // namespace weft
