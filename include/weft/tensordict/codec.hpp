// SPDX-License-Identifier: BSL-1.0
// A tensordict as an argument or a result of calls, or as a part of one.
//
//   weft::tensordict act(weft::tensordict observations);
//   weft::tensordict actions = co_await p.call<&act>(observations);
//
// Its tensors travel as those of a call do: in buffers of their own, with their gradients in an
// autograd context. What arrives is not locked. A consolidated one is a single buffer, of values:
// no tensor is copied or allocated by itself. It arrives consolidated, and locked.
#pragma once

#include <weft/tensordict/tensordict.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/structure.hpp>
#include <weft/wire/tensor.hpp>

#include <cstddef>
#include <string_view>

namespace weft {

template <>
struct codec<tensordict> {
  static constexpr std::size_t min_size = 13;  // a kind; no dimensions, no names, no entries
  static void encode(writer& w, const tensordict& value);
  /// Refuses what no tensordict is: a key twice, sizes that do not fit, tensors that are undefined.
  static tensordict decode(reader& r);
};

/// The same, of its own.
template <>
struct codec<lazy_stack> {
  static constexpr std::size_t min_size = 13;  // that of a tensordict that has it
  static void encode(writer& w, const lazy_stack& value);
  static lazy_stack decode(reader& r);
};
template <>
struct structure<lazy_stack> {
  static constexpr std::string_view tag = "weft::lazy_stack 1";
};

template <>
struct structure<tensordict> {
  static constexpr std::string_view tag = "weft::tensordict 2";
};

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/tensordict/impl/codec_once.hpp>
#endif
