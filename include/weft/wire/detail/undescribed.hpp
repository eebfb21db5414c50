// SPDX-License-Identifier: BSL-1.0
// Finds the first part of a type that has no structural description, for sentences.
#pragma once

#include <weft/wire/structure.hpp>

#include <tuple>
#include <type_traits>

namespace weft::detail {

// Above: the types that contain T, so that a recursive type ends the search.
template <class T, class... Above>
consteval auto find_undescribed();

template <class... Above, class... Parts>
consteval auto find_undescribed_part(std::type_identity<std::tuple<Parts...>>) {
  if constexpr (sizeof...(Parts) == 0) {
    return std::type_identity<void>{};
  } else {
    return []<class First, class... Rest>(std::type_identity<std::tuple<First, Rest...>>) {
      using found = decltype(find_undescribed<std::remove_cvref_t<First>, Above...>());
      if constexpr (!std::is_void_v<typename found::type>) {
        return found{};
      } else {
        return find_undescribed_part<Above...>(std::type_identity<std::tuple<Rest...>>{});
      }
    }(std::type_identity<std::tuple<Parts...>>{});
  }
}

template <class T, class... Above>
consteval auto find_undescribed() {
  if constexpr (describable<T> || (std::is_same_v<T, Above> || ...)) {
    return std::type_identity<void>{};
  } else if constexpr (has_structure_parts<T>) {
    return find_undescribed_part<T, Above...>(std::type_identity<typename structure<T>::parts>{});
  } else if constexpr (standard_shape<T>::known) {
    return find_undescribed_part<T, Above...>(typename standard_shape<T>::parts{});
  } else if constexpr (std::is_class_v<T> && plain_aggregate<T> && !part_of_a_pair<T>) {
    return find_undescribed_part<T, Above...>(std::type_identity<member_types_t<T>>{});
  } else if constexpr (own_pair<T>) {
    // Its arguments matter as far as they are slips: it can do without their description.
    using found = decltype(find_undescribed_part<T, Above...>(typename own_name<T>::parts{}));
    constexpr bool is_a_slip = half_a_pair<typename found::type>;
    return std::type_identity<std::conditional_t<is_a_slip, typename found::type, T>>{};
  } else {
    return std::type_identity<T>{};
  }
}

/// The part of T (T itself, if nothing in it is to blame) that has no description.
template <class T>
struct undescribed {
  using found = decltype(find_undescribed<T>());
  using type = std::conditional_t<std::is_void_v<typename found::type>, T, typename found::type>;
};

/// Whether `refuse_structure` of that part tells why T cannot be sent.
template <class T, class Part = typename undescribed<T>::type>
inline constexpr bool refused_by_structure =
    half_a_pair<Part> || (!describable<T> && part_of_a_pair<Part>);

}  // namespace weft::detail
