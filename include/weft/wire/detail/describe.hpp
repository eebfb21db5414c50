// SPDX-License-Identifier: BSL-1.0
// Writes the structural description of a type into a running hash. Only weft/wire/structure.hpp
// includes this.
#pragma once

#include <weft/wire/detail/aggregate.hpp>
#include <weft/wire/detail/own_pair.hpp>
#include <weft/wire/detail/sentence.hpp>
#include <weft/wire/detail/type_name.hpp>

#include <array>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
template <class T>
struct structure;
}  // namespace weft

namespace weft::detail {

// The running hash: FNV-1a over the bytes of the description, 64 bits folded to 32 at the end.
class structure_text {
 public:
  constexpr void byte(std::uint8_t value) noexcept { state_ = (state_ ^ value) * 0x100000001b3u; }
  constexpr void number(std::uint64_t value) noexcept {
    for (int i = 0; i < 8; ++i) byte(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  constexpr void text(std::string_view value) noexcept {
    number(value.size());
    for (const char c : value) byte(static_cast<std::uint8_t>(c));
  }
  constexpr void fail() noexcept { failed_ = true; }
  constexpr bool failed() const noexcept { return failed_; }
  constexpr std::uint32_t hash() const noexcept {
    return static_cast<std::uint32_t>(state_ ^ (state_ >> 32));
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
  bool failed_ = false;
};

// The kinds of the description. Their values are part of the wire format: append only.
enum class structure_kind : std::uint8_t {
  none,  // void
  boolean,
  character,
  signed_integer,
  unsigned_integer,
  floating,
  enumeration,
  string,
  vector,
  set,
  multiset,
  map,
  multimap,
  optional,
  pointer,
  pair,
  tuple,
  variant,
  array,
  duration,
  time_point,
  complex,
  aggregate,
  again,
  named,
  own,
};

struct strict {};   // a type without a description is an error
struct lenient {};  // ... is noted in the text
struct in_full {};  // the same, and names are those of this program, with all they stand in

template <class T>
concept has_structure_tag = requires { std::string_view(structure<T>::tag); };
template <class T>
concept has_structure_parts = requires { typename structure<T>::parts; };
template <class T>
concept has_structure_member = requires { std::string_view(T::weft_structure); };
template <class T>
concept is_complete = std::is_void_v<T> || requires { sizeof(T); };

template <class T>
inline constexpr bool is_character =
    std::is_same_v<T, char> || std::is_same_v<T, char8_t> || std::is_same_v<T, char16_t> ||
    std::is_same_v<T, char32_t> || std::is_same_v<T, wchar_t>;

// False conditions of the sentences below.
template <class T>
inline constexpr bool names_its_format = false;
template <class T>
inline constexpr bool can_be_described = false;

template <class T>
consteval void refuse_structure() {
  if constexpr (half_a_pair<T>) {
    refuse_half_a_pair<T>();
  } else if constexpr (own_pair<T>) {
    WEFT_REQUIRE((names_its_format<T>),
                 "weft: this type has its own weft_encode, but no name that all compilers agree "
                 "on; name its format by a member `static constexpr std::string_view "
                 "weft_structure`, or specialise weft::structure.",
                 "weft: ", spelled<T>(),
                 " has its own weft_encode, but no name that all compilers agree on; name its "
                 "format by a member `static constexpr std::string_view weft_structure`, or "
                 "specialise weft::structure.");
  } else {
    WEFT_REQUIRE((can_be_described<T>),
                 "weft: this type cannot be sent: it is neither a plain aggregate, nor a type that "
                 "weft knows, nor one with weft_encode and weft_decode.",
                 "weft: ", spelled<T>(),
                 " cannot be sent: it is neither a plain aggregate, nor a type that weft knows, "
                 "nor one with weft_encode and weft_decode.");
  }
}

// What all compilers call a class: its name without what it stands in, and of a template without
// its arguments, which are `parts`. Empty where they do not agree: of what a class template
// contains, and of a template whose arguments are not all types.
template <class T>
struct own_name {
  static constexpr bool of_a_template = false;
  using parts = std::type_identity<std::tuple<>>;
  static constexpr std::string_view text = last_name(type_name<T>());
};
template <template <class...> class C, class... Args>
struct own_name<C<Args...>> {
  static constexpr bool of_a_template = true;
  using parts = std::type_identity<std::tuple<Args...>>;
  static constexpr std::string_view text = last_name(without_arguments(type_name<C<Args...>>()));
};

// Types being described, innermost first.
template <class... Types>
struct open_types {
  template <class T>
  static consteval std::size_t levels_up() {  // 0: not among them
    std::size_t level = 0;
    const bool found = ((++level, std::is_same_v<T, Types>) || ...);
    return found ? level : 0;
  }
};

// How the standard templates are described: by a kind, a count where it matters, and parts.
template <class T>
struct standard_shape {
  static constexpr bool known = false;
};

template <structure_kind Kind, std::uint64_t Count, class... Parts>
struct shape {
  static constexpr bool known = true;
  static constexpr structure_kind kind = Kind;
  static constexpr std::uint64_t count = Count;
  using parts = std::type_identity<std::tuple<Parts...>>;
};

template <class C, class R, class A>
struct standard_shape<std::basic_string<C, R, A>> : shape<structure_kind::string, 1, C> {};
template <class T, class A>
struct standard_shape<std::vector<T, A>> : shape<structure_kind::vector, 1, T> {};
template <class T, class A>
struct standard_shape<std::deque<T, A>> : shape<structure_kind::vector, 1, T> {};
template <class T, class A>
struct standard_shape<std::list<T, A>> : shape<structure_kind::vector, 1, T> {};
template <class K, class C, class A>
struct standard_shape<std::set<K, C, A>> : shape<structure_kind::set, 1, K> {};
template <class K, class H, class E, class A>
struct standard_shape<std::unordered_set<K, H, E, A>> : shape<structure_kind::set, 1, K> {};
template <class K, class C, class A>
struct standard_shape<std::multiset<K, C, A>> : shape<structure_kind::multiset, 1, K> {};
template <class K, class H, class E, class A>
struct standard_shape<std::unordered_multiset<K, H, E, A>> : shape<structure_kind::multiset, 1, K> {
};
template <class K, class V, class C, class A>
struct standard_shape<std::map<K, V, C, A>> : shape<structure_kind::map, 2, K, V> {};
template <class K, class V, class H, class E, class A>
struct standard_shape<std::unordered_map<K, V, H, E, A>> : shape<structure_kind::map, 2, K, V> {};
template <class K, class V, class C, class A>
struct standard_shape<std::multimap<K, V, C, A>> : shape<structure_kind::multimap, 2, K, V> {};
template <class K, class V, class H, class E, class A>
struct standard_shape<std::unordered_multimap<K, V, H, E, A>>
    : shape<structure_kind::multimap, 2, K, V> {};
template <class T>
struct standard_shape<std::optional<T>> : shape<structure_kind::optional, 1, T> {};
template <class T>
struct standard_shape<std::unique_ptr<T>> : shape<structure_kind::pointer, 1, T> {};
template <class A, class B>
struct standard_shape<std::pair<A, B>> : shape<structure_kind::pair, 2, A, B> {};
template <class... Types>
struct standard_shape<std::tuple<Types...>>
    : shape<structure_kind::tuple, sizeof...(Types), Types...> {};
template <class... Types>
struct standard_shape<std::variant<Types...>>
    : shape<structure_kind::variant, sizeof...(Types), Types...> {};
template <class T, std::size_t N>
struct standard_shape<std::array<T, N>> : shape<structure_kind::array, N, T> {};
template <class T, std::size_t N>
struct standard_shape<T[N]> : shape<structure_kind::array, N, T> {};
template <class T>
struct standard_shape<std::complex<T>> : shape<structure_kind::complex, 1, T> {};
template <class Clock, class D>
  requires(!std::is_same_v<Clock, std::chrono::steady_clock>)
struct standard_shape<std::chrono::time_point<Clock, D>> : shape<structure_kind::time_point, 1, D> {
};

template <class T>
struct duration_period {
  static constexpr bool known = false;
};
template <class R, class P>
struct duration_period<std::chrono::duration<R, P>> {
  static constexpr bool known = true;
  static constexpr auto numerator = static_cast<std::uint64_t>(P::num);
  static constexpr auto denominator = static_cast<std::uint64_t>(P::den);
};

template <class Mode, class T, class Open = open_types<>>
constexpr void describe(structure_text& out);

template <class Mode, class Open, class... Parts>
constexpr void describe_parts(structure_text& out, std::type_identity<std::tuple<Parts...>>) {
  (detail::describe<Mode, Parts, Open>(out), ...);
}

/// It has a name in the program, and none in descriptions.
template <class T>
concept has_last_name =
    (std::is_class_v<T> || std::is_union_v<T> || std::is_enum_v<T>) && !has_structure_tag<T> &&
    !has_structure_member<T> && !standard_shape<T>::known && !duration_period<T>::known;

template <class Mode, class Open, class... Args>
constexpr void describe_each_argument(structure_text& out, std::type_identity<std::tuple<Args...>>);
template <class Mode, class Open, class... Args>
constexpr void describe_arguments(structure_text& out, std::type_identity<std::tuple<Args...>> all);

/// An argument of a template with a codec of its own may be, or contain, a mark, of which only the
/// name counts, and, if it is a template, its arguments: so it must have a name.
template <class Mode, class T, class Open>
constexpr void describe_argument(structure_text& out) {
  if constexpr (standard_shape<T>::known && !has_structure_tag<T>) {
    out.byte(static_cast<std::uint8_t>(standard_shape<T>::kind));
    out.number(standard_shape<T>::count);
    detail::describe_each_argument<Mode, Open>(out, typename standard_shape<T>::parts{});
  } else {
    // A class with such a codec itself is described by its name.
    constexpr bool has_it_there = std::is_class_v<T> && own_pair<T>;
    if constexpr (has_last_name<T> && !has_it_there) {
      using name = own_name<T>;
      if (name::text.empty()) out.fail();
      out.text(name::text);
      if constexpr (name::of_a_template) {
        detail::describe_arguments<Mode, Open>(out, typename name::parts{});
      }
    }
    detail::describe<Mode, T, Open>(out);
  }
}
template <class Mode, class Open, class... Args>
constexpr void describe_each_argument(structure_text& out,
                                      std::type_identity<std::tuple<Args...>>) {
  (describe_argument<Mode, std::remove_cvref_t<Args>, Open>(out), ...);
}
template <class Mode, class Open, class... Args>
constexpr void describe_arguments(structure_text& out,
                                  std::type_identity<std::tuple<Args...>> all) {
  out.number(sizeof...(Args));
  detail::describe_each_argument<Mode, Open>(out, all);
}

/// By its name, if its template's arguments can be described.
template <class T, class... Outer>
consteval bool has_own_name(open_types<Outer...>) {
  if constexpr (std::is_class_v<T> && own_pair<T>) {
    structure_text text;
    detail::describe_arguments<lenient, open_types<T, Outer...>>(text,
                                                                 typename own_name<T>::parts{});
    return !own_name<T>::text.empty() && !text.failed();
  } else {
    return false;
  }
}
template <class Mode, class T, class... Outer>
constexpr void describe_by_name(structure_text& out, open_types<Outer...>) {
  out.text(std::is_same_v<Mode, in_full> ? type_name<T>() : own_name<T>::text);
  detail::describe_arguments<Mode, open_types<T, Outer...>>(out, typename own_name<T>::parts{});
}

template <class T>
constexpr void describe_size(structure_text& out, structure_kind kind) {
  out.byte(static_cast<std::uint8_t>(kind));
  out.number(sizeof(T));
}

template <class Mode, class T, class... Outer>
constexpr void describe_aggregate(structure_text& out, open_types<Outer...>) {
  if constexpr (std::is_same_v<Mode, strict> || plain_aggregate<T>) {
    out.number(member_count<T>());
    detail::describe_parts<Mode, open_types<T, Outer...>>(out,
                                                          std::type_identity<member_types_t<T>>{});
  } else {
    out.fail();
  }
}

template <class T>
consteval bool describes_members() {
  if constexpr (std::is_array_v<T> || !is_complete<T> || part_of_a_pair<T>) {
    return false;
  } else {
    return std::is_aggregate_v<T> || std::is_union_v<T>;
  }
}

template <class Mode, class T, class Open>
constexpr void describe_type(structure_text& out) {
  const auto kind = [&out](structure_kind k) { out.byte(static_cast<std::uint8_t>(k)); };
  if constexpr (std::is_void_v<T>) {
    kind(structure_kind::none);
  } else if constexpr (has_structure_tag<T>) {
    kind(structure_kind::named);
    out.text(structure<T>::tag);
    if constexpr (has_structure_parts<T>) {
      detail::describe_parts<Mode, Open>(out, std::type_identity<typename structure<T>::parts>{});
    }
  } else if constexpr (has_structure_member<T>) {
    kind(structure_kind::named);
    out.text(T::weft_structure);
  } else if constexpr (std::is_same_v<T, bool>) {
    describe_size<T>(out, structure_kind::boolean);
  } else if constexpr (is_character<T>) {
    describe_size<T>(out, structure_kind::character);
  } else if constexpr (std::is_integral_v<T>) {
    describe_size<T>(out, std::is_signed_v<T> ? structure_kind::signed_integer
                                              : structure_kind::unsigned_integer);
  } else if constexpr (std::is_floating_point_v<T>) {
    describe_size<T>(out, structure_kind::floating);
  } else if constexpr (std::is_enum_v<T>) {
    kind(structure_kind::enumeration);
    describe<Mode, std::underlying_type_t<T>, Open>(out);
  } else if constexpr (duration_period<T>::known) {
    kind(structure_kind::duration);
    out.number(duration_period<T>::numerator);
    out.number(duration_period<T>::denominator);
    describe<Mode, typename T::rep, Open>(out);
  } else if constexpr (standard_shape<T>::known) {
    kind(standard_shape<T>::kind);
    out.number(standard_shape<T>::count);
    detail::describe_parts<Mode, Open>(out, typename standard_shape<T>::parts{});
  } else if constexpr (Open::template levels_up<T>() != 0) {
    kind(structure_kind::again);
    out.number(Open::template levels_up<T>());
  } else if constexpr (has_own_name<T>(Open{})) {
    kind(structure_kind::own);
    describe_by_name<Mode, T>(out, Open{});
  } else if constexpr (describes_members<T>()) {
    kind(structure_kind::aggregate);
    describe_aggregate<Mode, T>(out, Open{});
  } else if constexpr (std::is_same_v<Mode, lenient>) {
    out.fail();
  } else {
    refuse_structure<T>();
  }
}

template <class Mode, class T, class Open>
constexpr void describe(structure_text& out) {
  describe_type<Mode, std::remove_cvref_t<T>, Open>(out);
}

template <class... Types>
consteval bool describes() {
  structure_text text;
  (describe<lenient, Types>(text), ...);
  return !text.failed();
}

}  // namespace weft::detail
