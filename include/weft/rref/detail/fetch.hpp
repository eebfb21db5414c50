// SPDX-License-Identifier: BSL-1.0
// Functions that weft itself calls on referenced objects, in the form of `detail::exposed<f>`.
#pragma once

#include <weft/rpc/detail/invocation.hpp>
#include <weft/wire/detail/type_name.hpp>
#include <weft/wire/structure.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

namespace weft::detail {

/// What to_here calls: a copy of the object, made on its worker's thread, where its coroutine
/// functions run, so that these need no lock against it. Named after T, for types of one structure
/// differ.
template <class T>
struct fetch_function {
  using result = T;
  using arguments = std::tuple<>;
  static constexpr function_style style = function_style::coroutine;
  static std::string_view name() { return spelled().text; }
  static bool has_portable_name() { return spelled().portable; }
  static std::uint64_t id() { return name_hash(name()); }
  static constexpr std::uint32_t signature = structure_hash<T>();
  static asio::awaitable<T> call(invocation& c, arguments&&) { co_return object_of<T>(c); }

 private:
  static const spelling& spelled() {
    static const spelling& found = *new spelling([] {
      const std::string of = spelled_class<T>();
      const bool portable = !of.empty();
      return spelling{"weft::rref<" + (portable ? of : std::string(type_name<T>())) + ">::to_here",
                      portable};
    }());
    return found;
  }
};

}  // namespace weft::detail
