// SPDX-License-Identifier: BSL-1.0
// How C++ values become bytes and come back. All numbers are little-endian; T* means T's codec.
//
//   arithmetic, enum, std::byte   the value, fixed width (bool: one byte, 0 or 1)
//   string, vector, deque, list   count 4, elements
//   set, map and unordered ones   count 4, elements or key-value pairs, no duplicates
//   optional, unique_ptr          one byte 0 or 1, then the value if 1
//   variant                       index 1, then that alternative
//   pair, tuple, array, complex   the elements in order
//   duration, time_point          the count of ticks (not of steady_clock: it has no common epoch)
//   aggregate                     the members in order
//   types without any byte        (empty aggregate, monostate, tuple<>, array of 0) one zero byte
//
// Every value takes at least one byte, so that no count is free. To send a type of your own, define
//
//   void weft_encode(weft::writer&, const T&);
//   T    weft_decode(weft::reader&, std::type_identity<T>);
//
// in T's namespace, or specialise `weft::codec<T>`. Caller and callee compare the name of T's
// class, because weft cannot see what these functions write. If you change what they write, name
// the format (wire/structure.hpp), so that older and newer programs find that they differ:
//
//   static constexpr std::string_view weft_structure = "geo::shape 2";   // a member of T
#pragma once

#include <weft/wire/detail/own_pair.hpp>
#include <weft/wire/reader.hpp>
#include <weft/wire/writer.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace weft {

/// A specialisation has
///   static constexpr std::size_t min_size;      the fewest bytes of a value, at least 1
///   static void encode(writer&, const T&);      reads the value only before it returns
///   static T    decode(reader&);                charges memory before it allocates it
/// If it holds values of other types, it also has `using elements = std::tuple<E...>`. `encode`
/// refuses a value by the writer's errors, `decode` by `reader::fail`. If they throw
/// std::bad_alloc, the call fails with resource_exhausted; other exceptions make it fail with
/// not_encodable. They run on the thread that makes or serves the call, and must not block.
template <class T>
struct codec;

/// T has weft_encode and weft_decode (see above).
template <class T>
concept custom_encodable = detail::own_pair<T>;

}  // namespace weft

#include <weft/wire/detail/encodable.hpp>

namespace weft {

/// T can be sent, with all that it contains.
template <class T>
concept encodable = detail::culprit_of<T>::none;

/// If T is not encodable, this is a compile error that says why.
template <class T>
consteval void require_encodable() {
  using culprit = detail::culprit_of<T>;
  if constexpr (!culprit::none) {
    detail::explain<T, typename culprit::type, typename culprit::holder, culprit::index>();
  }
}

/// Writes one value. Pure. Throws rpc_error (not_encodable, message_too_large), std::bad_alloc, and
/// the exceptions of a codec.
///
///   weft::encode(w, std::vector<int>{1, 2});
template <class T>
void encode(writer& w, const T& value) {
  require_encodable<T>();
  if constexpr (encodable<T>) codec<T>::encode(w, value);
}

/// Reads one value. Pure. Throws rpc_error (bad_arguments), std::bad_alloc, and the exceptions of a
/// codec.
template <class T>
[[nodiscard]] T decode(reader& r) {
  require_encodable<T>();
  if constexpr (encodable<T>) return codec<T>::decode(r);
}

/// Writes the values one after another: the payload of a request, or a result (none for void).
template <class... Ts>
void encode_all(writer& w, const Ts&... values) {
  (weft::encode<Ts>(w, values), ...);
}

/// Reads a whole payload; bytes left over are refused.
template <class... Ts>
[[nodiscard]] std::tuple<Ts...> decode_all(reader& r) {
  (require_encodable<Ts>(), ...);
  std::size_t index = 0;
  auto next = [&]<class T>(std::type_identity<T>) {
    r.field("arguments", index++);
    return weft::decode<T>(r);
  };
  std::tuple<Ts...> values{next(std::type_identity<Ts>{})...};
  r.finish();
  return values;
}

}  // namespace weft

#include <weft/wire/impl/codec_aggregates.hpp>
#include <weft/wire/impl/codec_containers.hpp>
#include <weft/wire/impl/codec_values.hpp>
