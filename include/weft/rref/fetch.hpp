// SPDX-License-Identifier: BSL-1.0
// Functions that weft itself calls on referenced objects, in the form of `detail::exposed<f>`.
#pragma once

#include <weft/rpc/invocation.hpp>
#include <weft/wire/structure.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <string_view>
#include <tuple>

namespace weft::detail {

/// What to_here calls: a copy of the object. One id for all T; the signature tells them apart. The
/// object is copied on its worker's thread, where its coroutine functions run, so that these need
/// no lock against it.
template <class T>
struct fetch_function {
  using result = T;
  using arguments = std::tuple<>;
  static constexpr run_style style = run_style::coroutine;
  static constexpr std::string_view name() { return "weft::rref::to_here"; }
  static constexpr std::uint64_t id = name_hash("weft::rref::to_here");
  static constexpr std::uint32_t signature = structure_hash<T>();
  static asio::awaitable<T> call(invocation& c, arguments&&) { co_return object_of<T>(c); }
};

}  // namespace weft::detail
