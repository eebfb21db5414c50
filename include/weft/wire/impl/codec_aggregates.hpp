// SPDX-License-Identifier: BSL-1.0
// Codecs of the user's types: aggregates, and types with weft_encode and weft_decode.
#pragma once

#include <weft/wire/codec.hpp>
#include <weft/wire/detail/aggregate.hpp>
#include <weft/wire/detail/plain.hpp>
#include <weft/wire/detail/type_name.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft {
namespace detail {

template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;

template <class... Ms>
consteval std::size_t sum_of_min_sizes(std::type_identity<std::tuple<Ms...>>) {
  return (std::size_t{0} + ... + codec<Ms>::min_size);
}

// A member, or each element of a C array that is one.
template <class M>
void encode_member(writer& w, const M& member) {
  if constexpr (std::is_array_v<M>) {
    for (const auto& each : member) encode_member(w, each);
  } else {
    codec<M>::encode(w, member);
  }
}

}  // namespace detail

template <class T>
  requires custom_encodable<T>
struct codec<T> {
  static constexpr std::size_t min_size = 1;
  static void encode(writer& w, const T& value) {
    const auto level = w.nested();
    const std::size_t before = w.size();
    weft_encode(w, value);
    if (w.size() == before) w.number(std::uint8_t{0});
  }
  static T decode(reader& r) {
    const auto level = r.nested();
    const std::size_t before = r.position();
    T value = weft_decode(r, std::type_identity<T>{});
    if (r.position() == before) detail::read_zero(r);
    return value;
  }
};

template <class T>
  requires(std::is_aggregate_v<T> && !detail::is_std_array<T> && !detail::part_of_a_pair<T> &&
           detail::plain_aggregate<T>)
struct codec<T> {
  using elements = detail::element_types_t<T>;
  static constexpr bool empty = std::tuple_size_v<elements> == 0;
  static constexpr std::size_t min_size =
      empty ? 1 : detail::sum_of_min_sizes(std::type_identity<elements>{});

  static void encode(writer& w, const T& value) {
    if constexpr (empty) {
      w.number(std::uint8_t{0});
    } else {
      std::apply([&w](const auto&... each) { (detail::encode_member(w, each), ...); },
                 detail::members(value));
    }
  }
  static T decode(reader& r) {
    if constexpr (empty) {
      detail::read_zero(r);
      return detail::build<T>(member_reader{r});
    } else {
      return detail::build<T>(member_reader{r});
    }
  }

 private:
  struct member_reader {
    reader& r;
    std::size_t index = 0;
    template <class M>
    M operator()() {
      r.field(detail::type_name<T>(), index++);
      return codec<M>::decode(r);
    }
  };
};

}  // namespace weft
