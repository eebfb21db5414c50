// SPDX-License-Identifier: BSL-1.0
// The single checks behind rpc/detail/call_check.hpp. Each condition is a variable template whose
// name and arguments tell what is wrong, because Clang prints them; positions count from 1.
#pragma once

#include <weft/rpc/detail/stands_for.hpp>
#include <weft/rpc/function.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/detail/sentence.hpp>
#include <weft/wire/detail/undescribed.hpp>
#include <weft/wire/structure.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::detail {

template <class... T>
struct types {};

// ---- the declaration

template <auto F>
inline constexpr bool called_on_a_peer = std::is_void_v<typename function<F>::object>;

/// Object: the class of F as a member, or T of its first parameter, T& or const T&.
template <auto F, class T, class Object = typename function<F>::object>
inline constexpr bool called_on_an_object =
    std::same_as<std::remove_const_t<T>, Object> ||
    (function<F>::is_member && std::derived_from<T, Object>);

template <auto F>
inline constexpr bool no_ellipsis = !function<F>::is_variadic;
template <auto F>
inline constexpr bool immediate_takes_no_worker =
    function<F>::style != function_style::immediate || function<F>::injects != injection::worker;

template <class T>
inline constexpr bool is_view_type = false;
template <class C, class R>
inline constexpr bool is_view_type<std::basic_string_view<C, R>> = true;
template <class T, std::size_t N>
inline constexpr bool is_view_type<std::span<T, N>> = true;
template <class T>
inline constexpr bool is_view_type<std::initializer_list<T>> = true;

// c10::ArrayRef and its relatives, by name: this header knows no libtorch.
template <class T>
consteval bool is_array_ref() {
  const std::string_view name = spelled<T>();
  return name.starts_with("c10::") && name.substr(0, name.find('<')).ends_with("ArrayRef");
}

template <class T>
inline constexpr bool is_injected_type = std::is_same_v<std::remove_cvref_t<T>, worker> ||
                                         std::is_same_v<std::remove_cvref_t<T>, caller>;

template <auto F, std::size_t Position, class P>
inline constexpr bool injected_type_comes_first = !is_injected_type<P>;
template <auto F, std::size_t Position, class P>
inline constexpr bool one_is_injected =
    !is_injected_type<P> || function<F>::injects == injection::none;
template <auto F, std::size_t Position, class P>
inline constexpr bool no_rvalue_reference = !std::is_rvalue_reference_v<P>;
template <auto F, std::size_t Position, class P>
inline constexpr bool no_mutable_reference =
    !std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>;
template <auto F, std::size_t Position, class P>
inline constexpr bool no_pointer = !std::is_pointer_v<std::remove_cvref_t<P>> &&
                                   !std::is_member_pointer_v<std::remove_cvref_t<P>> &&
                                   !std::is_null_pointer_v<std::remove_cvref_t<P>>;
template <auto F, std::size_t Position, class P>
inline constexpr bool no_view =
    !is_view_type<std::remove_cvref_t<P>> && !is_array_ref<std::remove_cvref_t<P>>();
// Part is P, or what in P cannot be sent.
template <auto F, std::size_t Position, class P, class Part = P>
inline constexpr bool can_be_sent = describable<P>;

template <auto F, std::size_t Position, class P>
consteval bool check_parameter() {
  if constexpr (!one_is_injected<F, Position, P>) {
    WEFT_REQUIRE((one_is_injected<F, Position, P>),
                 "weft: only one of weft::worker& and const weft::caller& is injected; take const "
                 "weft::caller&, whose self() is the worker.",
                 "weft: parameter ", Position, " of ", name_of<F>::value(), ", ", spelled<P>(),
                 ": only one of weft::worker& and const weft::caller& is injected; take const "
                 "weft::caller&, whose self() is the worker.");
  } else if constexpr (!injected_type_comes_first<F, Position, P>) {
    WEFT_REQUIRE((injected_type_comes_first<F, Position, P>),
                 "weft: weft::worker& or const weft::caller& must be the first parameter and be "
                 "written exactly so; weft passes it.",
                 "weft: parameter ", Position, " of ", name_of<F>::value(), ", ", spelled<P>(),
                 ": weft::worker& or const weft::caller& must be the first parameter and be "
                 "written exactly so; weft passes it.");
  } else if constexpr (!no_rvalue_reference<F, Position, P>) {
    WEFT_REQUIRE((no_rvalue_reference<F, Position, P>),
                 "weft: a parameter cannot be an rvalue reference; take it by value.",
                 "weft: parameter ", Position, " of ", name_of<F>::value(),
                 " is an rvalue reference, ", spelled<P>(), "; take it by value.");
  } else if constexpr (!no_mutable_reference<F, Position, P>) {
    WEFT_REQUIRE((no_mutable_reference<F, Position, P>),
                 "weft: a parameter cannot be a T&, because the caller would not see the changes; "
                 "take it by value or const T& and return the result.",
                 "weft: parameter ", Position, " of ", name_of<F>::value(), " is ", spelled<P>(),
                 ", but the caller would not see the changes; take it by value or by const "
                 "reference and return the result.");
  } else if constexpr (!no_pointer<F, Position, P>) {
    WEFT_REQUIRE((no_pointer<F, Position, P>),
                 "weft: a parameter cannot be a pointer, which means nothing in another process; "
                 "take a value (std::string for text, std::vector for arrays) or a weft::rref<T>.",
                 "weft: parameter ", Position, " of ", name_of<F>::value(), " is a pointer, ",
                 spelled<P>(),
                 ", which means nothing in another process; take a value "
                 "(std::string for text, std::vector for arrays) or a weft::rref<T>.");
  } else if constexpr (!no_view<F, Position, P>) {
    WEFT_REQUIRE((no_view<F, Position, P>),
                 "weft: a parameter cannot be a view (string_view, span, ArrayRef), which does not "
                 "own its data; take std::string or std::vector.",
                 "weft: parameter ", Position, " of ", name_of<F>::value(), " is a view, ",
                 spelled<P>(),
                 ", which does not own its data; take std::string or "
                 "std::vector.");
  } else {
    using part = typename undescribed<std::remove_cvref_t<P>>::type;
    if constexpr (refused_by_structure<std::remove_cvref_t<P>>) {
      refuse_structure<part>();
    } else if constexpr (describable<P> && !encodable<std::remove_cvref_t<P>>) {
      require_encodable<std::remove_cvref_t<P>>();
    } else {
      WEFT_REQUIRE(
          (can_be_sent<F, Position, P, part>),
          "weft: this parameter cannot be sent: its type, or the type of a part of it (named "
          "last), is unknown to weft, is no plain aggregate, and has no weft_encode and "
          "weft_decode in its namespace.",
          "weft: parameter ", Position, " of ", name_of<F>::value(),
          " cannot be sent: ", spelled<part>(),
          ", its type or the type of a part of it, is unknown to weft, is no plain aggregate, "
          "and has no weft_encode and weft_decode in its namespace.");
    }
  }
  return true;
}

// The position, in the declaration, of the first parameter that travels.
template <auto F, class Object = typename function<F>::object>
inline constexpr std::size_t first_position =
    1 + (function<F>::injects != injection::none ? 1 : 0) +
    (!function<F>::is_member && !std::is_void_v<Object> ? 1 : 0);

/// Parameters: those that travel.
template <auto F, class Object = typename function<F>::object,
          class Parameters = typename function<F>::parameters>
consteval bool check_declaration() {
  WEFT_REQUIRE((no_ellipsis<F>),
               "weft: a function with C's ... cannot be called, because the types of its arguments "
               "are unknown; take a std::vector.",
               "weft: ", name_of<F>::value(),
               " has C's ..., so the types of its arguments are unknown; take a std::vector.");
  WEFT_REQUIRE((immediate_takes_no_worker<F>),
               "weft: an immediate function runs on the thread that reads requests, so it takes no "
               "weft::worker&; take const weft::caller&, or make it a coroutine.",
               "weft: ", name_of<F>::value(),
               " is immediate and runs on the thread that reads requests, so it takes no "
               "weft::worker&; take const weft::caller&, or make it a coroutine.");
  return []<class... P>(std::type_identity<std::tuple<P...>>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (check_parameter<F, first_position<F, Object> + I, P>() && ... && true);
    }(std::index_sequence_for<P...>{});
  }(std::type_identity<Parameters>{});
}

// ---- the arguments

template <auto F, std::size_t Given, std::size_t Takes>
inline constexpr bool argument_count_fits = Given == Takes;

template <auto F, std::size_t Argument, class Given, class Parameter>
inline constexpr bool argument_converts =
    std::is_convertible_v<Given, Parameter> || stands_for<std::remove_cvref_t<Given>, Parameter>;

template <bool... IsOption>
consteval std::size_t arguments_before_options() {
  constexpr std::array<bool, sizeof...(IsOption) + 1> option{IsOption..., true};
  std::size_t count = 0;
  while (!option[count]) ++count;
  return count;
}
template <bool... IsOption>
inline constexpr bool options_come_last =
    (std::size_t{0} + ... + (IsOption ? 0u : 1u)) == arguments_before_options<IsOption...>();

/// Higher floors say so of weft::callback.
template <class Parameter>
inline constexpr bool is_callback = false;

template <auto F, class Arguments, std::size_t Argument, class Given>
consteval bool check_argument() {
  using parameter = std::tuple_element_t<Argument - 1, Arguments>;
  if constexpr (!argument_converts<F, Argument, Given, parameter>) {
    if constexpr (is_callback<parameter>) {
      WEFT_REQUIRE((argument_converts<F, Argument, Given, parameter>),
                   "weft: this argument must be a weft::callback; make one from the function, at "
                   "the worker that runs it: weft::callback<void(int)>(me, f).",
                   "weft: argument ", Argument, " of ", name_of<F>::value(),
                   " must be a callback; make one from the function, at the worker that runs it: ",
                   spelled<parameter>(), "(me, f).");
    } else {
      WEFT_REQUIRE((argument_converts<F, Argument, Given, parameter>),
                   "weft: this argument does not convert to the function's parameter.",
                   "weft: argument ", Argument, " of ", name_of<F>::value(), ", ", spelled<Given>(),
                   ", does not convert to ", spelled<parameter>(), ".");
    }
  }
  return true;
}

template <auto F, std::size_t Given, std::size_t Takes>
consteval void check_count() {
  WEFT_REQUIRE((argument_count_fits<F, Given, Takes>),
               "weft: this call gives another number of arguments than the function takes (default "
               "arguments do not count).",
               "weft: ", name_of<F>::value(), " takes ", Takes, " arguments, ", Given,
               " given (default arguments do not count).");
}

template <auto F, class Arguments, bool... IsOption, class... Args>
consteval bool check_arguments(types<Args...>) {
  WEFT_REQUIRE(
      (options_come_last<IsOption...>),
      "weft: call options (weft::within, weft::as_expected, ...) come after all arguments.",
      "weft: in a call of ", name_of<F>::value(),
      ", options (weft::within, weft::as_expected, ...) come after all arguments.");
  if constexpr (options_come_last<IsOption...>) {
    constexpr std::size_t given = arguments_before_options<IsOption...>();
    constexpr std::size_t takes = std::tuple_size_v<Arguments>;
    check_count<F, given, takes>();
    if constexpr (given == takes) {
      using all = std::tuple<types<Args>...>;
      return []<std::size_t... I>(std::index_sequence<I...>) {
        return ([]<class A>(types<A>) {
          return check_argument<F, Arguments, I + 1, A>();
        }(std::tuple_element_t<I, all>{}) &&
                ... && true);
      }(std::make_index_sequence<given>{});
    }
  }
  return true;
}

// ---- results and constructors

template <auto F, class Result>
inline constexpr bool result_can_be_sent = describable<Result>;

template <class T, class... Args>
inline constexpr bool can_be_made_from = std::is_constructible_v<T, Args...>;

}  // namespace weft::detail
