// SPDX-License-Identifier: BSL-1.0
// Asks which brace initialisers an aggregate accepts, and so counts what they initialise.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <type_traits>
#include <utility>

namespace weft::detail {

inline constexpr std::size_t max_members = 32;
inline constexpr std::size_t max_array_elements = 16;

// ---------------------------------------------------------------------------- probing
// A brace initialiser that converts to everything an aggregate T may hold, but not to T. `const`
// on the operators lets a member's own templated constructor win instead of being ambiguous. They
// are never called, but have bodies, without which types in unnamed namespaces cannot be probed.
template <class T>
struct any_member {
  template <class M>
    requires(!std::is_same_v<M, T>)
  operator M() const noexcept {
    std::abort();
  }
};

// Binds to reference members as well: tells "has a reference" from "cannot be counted".
template <class T>
struct any_reference {
  template <class M>
    requires(!std::is_same_v<std::remove_cv_t<M>, T> && std::is_copy_constructible_v<M>)
  operator M&() const noexcept {
    std::abort();
  }
  template <class M>
    requires(!std::is_same_v<std::remove_cv_t<M>, T> && !std::is_copy_constructible_v<M>)
  operator M&&() const noexcept {
    std::abort();
  }
};

// Converts only to base classes of T.
template <class T>
struct any_base {
  template <class M>
    requires(!std::is_same_v<M, T> && std::is_base_of_v<M, T>)
  operator M() const noexcept {
    std::abort();
  }
};

template <class T>
struct any_empty_base {
  template <class M>
    requires(!std::is_same_v<M, T> && std::is_base_of_v<M, T> && std::is_empty_v<M>)
  operator M() const noexcept {
    std::abort();
  }
};

// Converts only to unions.
template <class T>
struct any_union {
  template <class M>
    requires(std::is_union_v<M>)
  operator M() const noexcept {
    std::abort();
  }
};

// Converts to nothing: only members that take anything at all, like std::any, accept it.
struct no_member {};

template <class Probe, std::size_t>
using probe_at = Probe;

template <class T, class Before, class Probe, class After>
inline constexpr bool braces_take = false;
template <class T, std::size_t... Before, class Probe, std::size_t... After>
inline constexpr bool
    braces_take<T, std::index_sequence<Before...>, Probe, std::index_sequence<After...>> =
        requires {
          T{probe_at<any_member<T>, Before>{}..., Probe{}, probe_at<any_member<T>, After>{}...};
        };

// T{any x Before, Probe, any x After}
template <class T, std::size_t Before, class Probe, std::size_t After>
inline constexpr bool takes_probe =
    braces_take<T, std::make_index_sequence<Before>, Probe, std::make_index_sequence<After>>;

template <class T, class Probe, std::size_t... I>
consteval bool takes_all(std::index_sequence<I...>) {
  return requires { T{probe_at<Probe, I>{}...}; };
}

// T{Probe x Count}
template <class T, class Probe, std::size_t Count>
inline constexpr bool takes = takes_all<T, Probe>(std::make_index_sequence<Count>{});

// Probe initialises exactly the member at flat position At (and not, by brace elision, the first
// of its own members, which would leave room for one initialiser more).
template <class T, std::size_t At, class Probe, std::size_t Flat>
inline constexpr bool is_at =
    takes_probe<T, At, Probe, Flat - At - 1> && !takes_probe<T, At, Probe, Flat - At> &&
    !takes_probe<T, At, no_member, Flat - At - 1>;

template <class T, std::size_t... B, std::size_t... I, std::size_t... A>
consteval bool takes_nested(std::index_sequence<B...>, std::index_sequence<I...>,
                            std::index_sequence<A...>) {
  return requires {
    T{probe_at<any_member<T>, B>{}...,
      {probe_at<any_member<T>, I>{}...},
      probe_at<any_member<T>, A>{}...};
  };
}

// T{any x Before, {any x Inner}, any x After}
template <class T, std::size_t Before, std::size_t Inner, std::size_t After>
inline constexpr bool takes_group =
    takes_nested<T>(std::make_index_sequence<Before>{}, std::make_index_sequence<Inner>{},
                    std::make_index_sequence<After>{});

// ---------------------------------------------------------------------------- counting
// "Flat" counts every element of a C array, as brace elision does. The valid flat counts of an
// aggregate form one interval: from the last member that has no default up to all of them.
inline constexpr std::size_t not_found = static_cast<std::size_t>(-1);
inline constexpr std::size_t max_flat = max_members * max_array_elements;

template <class T, class Probe, std::size_t Low, std::size_t High>
consteval std::size_t last_valid() {  // Low is valid, High is not
  if constexpr (High - Low == 1) {
    return Low;
  } else {
    constexpr std::size_t middle = Low + (High - Low) / 2;
    if constexpr (takes<T, Probe, middle>) {
      return last_valid<T, Probe, middle, High>();
    } else {
      return last_valid<T, Probe, Low, middle>();
    }
  }
}

template <class T, class Probe, std::size_t Low>
consteval std::size_t gallop() {  // Low is valid
  constexpr std::size_t high = Low == 0 ? 8 : Low * 2;
  if constexpr (Low > max_flat) {
    return not_found;
  } else if constexpr (takes<T, Probe, high>) {
    return gallop<T, Probe, high>();
  } else {
    return last_valid<T, Probe, Low, high>();
  }
}

template <class T, class Probe, std::size_t Count>
consteval std::size_t probe_down() {
  if constexpr (takes<T, Probe, Count>) {
    return Count;
  } else if constexpr (Count == 0) {
    return not_found;
  } else {
    return probe_down<T, Probe, Count - 1>();
  }
}

template <class T, class Probe, std::size_t Count>
consteval std::size_t probe_up() {
  if constexpr (takes<T, Probe, Count>) {
    return gallop<T, Probe, Count>();
  } else if constexpr (Count >= 4 * max_members) {
    return not_found;
  } else {
    return probe_up<T, Probe, Count + 1>();
  }
}

template <class T, class Probe>
consteval std::size_t count_flat() {
  if constexpr (takes<T, Probe, 0>) {
    return gallop<T, Probe, 0>();
  } else if constexpr (takes<T, Probe, max_members>) {
    return gallop<T, Probe, max_members>();
  } else if constexpr (probe_down<T, Probe, max_members - 1>() != not_found) {
    return probe_down<T, Probe, max_members - 1>();
  } else {
    return probe_up<T, Probe, max_members + 1>();
  }
}

template <class T>
inline constexpr std::size_t flat_count = count_flat<T, any_member<T>>();

// How many flat positions the member that begins at flat position At takes. A C array is what a
// nested list of its very length fits, with nothing left over behind it.
template <class T, std::size_t Flat, std::size_t At, std::size_t Length>
consteval std::size_t array_length() {
  if constexpr (At + Length > Flat) {
    return 1;
  } else if constexpr (takes_group<T, At, Length, Flat - At - Length> &&
                       !takes_group<T, At, Length, Flat - At - Length + 1>) {
    return Length;
  } else {
    return array_length<T, Flat, At, Length + 1>();
  }
}

template <class T, std::size_t Flat, std::size_t At>
consteval std::size_t width() {
  if constexpr (At + 1 >= Flat) {
    return 1;
  } else if constexpr (takes_group<T, At, 0, Flat - At - 1> ||
                       takes_group<T, At, 1, Flat - At - 1>) {
    return 1;
  } else {
    return array_length<T, Flat, At, 2>();
  }
}

template <class T, std::size_t Flat, std::size_t Bases = 0>
consteval std::size_t count_bases() {
  if constexpr (Bases >= Flat) {
    return Bases;
  } else if constexpr (is_at<T, Bases, any_base<T>, Flat>) {
    return count_bases<T, Flat, Bases + 1>();
  } else {
    return Bases;
  }
}

}  // namespace weft::detail
