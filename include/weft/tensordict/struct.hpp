// SPDX-License-Identifier: BSL-1.0
// A plain struct as a tensordict, and back: what Python's tensorclass is.
//
//   struct step { at::Tensor obs, action; std::string task; };
//   weft::tensordict td = weft::from_struct(step{obs, action, "pick"}, {32});
//   step again = weft::to_struct<step>(td.index({at::indexing::Slice(0, 16)}));
#pragma once

#include <weft/tensordict/detail/member_names.hpp>
#include <weft/tensordict/tensordict.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace weft {

template <class T>
struct struct_member;

/// A struct of up to 32 public members, without base classes: tensors, tensordicts, lazy stacks,
/// structs like it; bool, numbers, strings and non_tensor, which become non-tensor data; and
/// std::optional of these.
template <class T>
concept tensor_struct = detail::plain_aggregate<T> && !std::same_as<T, at::Tensor>;

/// An entry for each member, by its name. Tensors are shared, not copied, and begin with
/// `batch_size`, else `shape`. An optional without value has no entry.
template <tensor_struct T>
[[nodiscard]] tensordict from_struct(const T& value, at::IntArrayRef batch_size = {}) {
  tensordict out(batch_size);
  std::size_t next = 0;
  std::apply(
      [&](const auto&... member) {
        (struct_member<std::remove_cvref_t<decltype(member)>>::put(
             out, detail::member_names<T>[next++], member),
         ...);
      },
      detail::members(value));
  return out;
}

/// The other way round. Throws `no_key` if an entry is missing, or is no member's; `kind` if it is
/// something else than its member, or a number that does not fit.
template <tensor_struct T>
[[nodiscard]] T to_struct(const tensordict& td) {
  constexpr auto& names = detail::member_names<T>;
  for (const key_path& key : td.keys()) {
    if (std::find(names.begin(), names.end(), key.front()) == names.end()) {
      throw tensordict_error(tensordict_errc::no_key,
                             "entry '" + key.front() + "' is no member of the struct");
    }
  }
  std::size_t next = 0;
  return detail::build<T>([&]<class M>() -> M { return struct_member<M>::get(td, names[next++]); });
}

// ── members; a specialization of your own adds a type ──

/// How a member of type T becomes an entry, and comes out of it.
template <class T>
struct struct_member {
  static_assert(tensor_struct<T>,
                "weft: a member of a struct that becomes a tensordict is a tensor, a tensordict, a "
                "lazy stack, a bool, a number, a string, a struct of these, or optional");
  static void put(tensordict& td, std::string_view name, const T& value) {
    td.set(name, from_struct(value, td.batch_size()));
  }
  [[nodiscard]] static T get(const tensordict& td, std::string_view name) {
    return to_struct<T>(td.dict(name));
  }
};

template <class T>
  requires(std::same_as<T, at::Tensor> || std::same_as<T, tensordict> ||
           std::same_as<T, lazy_stack> || std::same_as<T, non_tensor>)
struct struct_member<T> {
  static void put(tensordict& td, std::string_view name, const T& value) { td.set(name, value); }
  [[nodiscard]] static T get(const tensordict& td, std::string_view name) {
    if constexpr (std::same_as<T, at::Tensor>) return td.tensor(name);
    if constexpr (std::same_as<T, tensordict>) return td.dict(name);
    if constexpr (std::same_as<T, lazy_stack>) return td.stack(name);
    if constexpr (std::same_as<T, non_tensor>) return td.data(name);
  }
};
template <>
struct struct_member<std::string> {
  static void put(tensordict& td, std::string_view name, const std::string& text) {
    td.set(name, non_tensor(text));
  }
  [[nodiscard]] static std::string get(const tensordict& td, std::string_view name) {
    return td.data(name).as_string();
  }
};
template <class T>
  requires std::is_arithmetic_v<T>
struct struct_member<T> {
  static void put(tensordict& td, std::string_view name, T value) {
    td.set(name, non_tensor(value));
  }
  [[nodiscard]] static T get(const tensordict& td, std::string_view name) {
    const non_tensor& data = td.data(name);
    if constexpr (std::same_as<T, bool>) {
      return data.as_bool();
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(data.as_double());
    } else {
      const auto value = [&] {
        if constexpr (std::is_signed_v<T>) {
          return data.as_int();
        } else {
          return data.as_uint();
        }
      }();
      if (std::in_range<T>(value)) return static_cast<T>(value);
      throw tensordict_error(tensordict_errc::kind, "entry '" + std::string(name) + "' is " +
                                                        std::to_string(value) +
                                                        ", which the member cannot hold");
    }
  }
};
template <class T>
struct struct_member<std::optional<T>> {
  static void put(tensordict& td, std::string_view name, const std::optional<T>& value) {
    if (value) struct_member<T>::put(td, name, *value);
  }
  [[nodiscard]] static std::optional<T> get(const tensordict& td, std::string_view name) {
    if (!td.contains(name)) return std::nullopt;
    return struct_member<T>::get(td, name);
  }
};

}  // namespace weft
