// SPDX-License-Identifier: BSL-1.0
// Takes the type of a function apart. Only weft/rpc/function.hpp includes this.
#pragma once

#include <weft/rpc/fwd.hpp>
#include <weft/rpc/identity.hpp>
#include <weft/wire/detail/sentence.hpp>
#include <weft/wire/structure.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace weft {

/// Where a function runs.
enum class function_style : std::uint8_t {
  plain,      // T: on the compute pool
  coroutine,  // asio::awaitable<T>: on the worker's executor
  immediate,  // immediate<T>: in place, on the thread that read the request; must not block
};

/// A class whose objects `peer::make` constructs in place, as an immediate function runs, and not
/// on the compute pool: its constructors must not block, and be shorter than a switch of threads.
/// It names itself, so that no class derived from it says the same unasked.
///
///   class counter {
///    public:
///     using immediate_constructor = counter;
template <class T>
concept immediate_to_make = std::is_same_v<typename T::immediate_constructor, T>;

/// What a function gets in its first parameter beside the arguments.
enum class injection : std::uint8_t {
  none,
  worker,  // weft::worker&
  caller,  // const weft::caller&
};

}  // namespace weft

namespace weft::detail {

// F without its `named`.
template <auto F>
inline constexpr auto pointer_of = F;
template <auto F>
  requires requires { std::remove_cv_t<decltype(F)>::function; }
inline constexpr auto pointer_of<F> = std::remove_cv_t<decltype(F)>::function;

// The result behind the return type, and where the function runs.
template <class T>
struct returns {
  using result = std::remove_cvref_t<T>;
  static constexpr function_style style = function_style::plain;
};
template <class T, class Executor>
struct returns<asio::awaitable<T, Executor>> {
  using result = std::remove_cvref_t<T>;
  static constexpr function_style style = function_style::coroutine;
};
template <class T>
struct returns<immediate<T>> {
  using result = std::remove_cvref_t<T>;
  static constexpr function_style style = function_style::immediate;
};

// The parameters: an injected one first, then the object if there is one, then what travels.
template <class... P>
struct injected {
  static constexpr injection injects = injection::none;
  using rest = std::tuple<P...>;
};
template <class... P>
struct injected<worker&, P...> {
  static constexpr injection injects = injection::worker;
  using rest = std::tuple<P...>;
};
template <class... P>
struct injected<const caller&, P...> {
  static constexpr injection injects = injection::caller;
  using rest = std::tuple<P...>;
};

template <class Rest>
struct object_first {
  using object = void;
  using parameters = Rest;
};
template <class T, class... P>
  requires(!std::is_const_v<T>)
struct object_first<std::tuple<T&, P...>> {
  using object = T;
  using parameters = std::tuple<P...>;
};

template <class Parameters>
struct values;
template <class... P>
struct values<std::tuple<P...>> {
  using type = std::tuple<std::remove_cvref_t<P>...>;
};

template <class R, class... P>
struct free_declaration : returns<R>, injected<P...> {
  using object = typename object_first<typename injected<P...>::rest>::object;
  using parameters = typename object_first<typename injected<P...>::rest>::parameters;
  using arguments = typename values<parameters>::type;
  static constexpr bool is_member = false;
  static constexpr bool is_constructor = false;
  static constexpr bool is_variadic = false;
};

template <class C, class R, class... P>
struct member_declaration : returns<R>, injected<P...> {
  using object = C;
  using parameters = typename injected<P...>::rest;
  using arguments = typename values<parameters>::type;
  static constexpr bool is_member = true;
  static constexpr bool is_constructor = false;
  static constexpr bool is_variadic = false;
};

template <class Declaration>
struct with_ellipsis : Declaration {
  static constexpr bool is_variadic = true;
};

template <class C, class R, class... P>
struct declared_as {
  using type = member_declaration<C, R, P...>;
};
template <class R, class... P>
struct declared_as<void, R, P...> {
  using type = free_declaration<R, P...>;
};

// A function type with its qualifiers: of a function (C is void) or of a member function of C.
template <class Function, class C>
struct function_signature;

#define WEFT_FUNCTION(qualifiers)                                                                  \
  template <class C, class R, class... P>                                                          \
  struct function_signature<R(P...) qualifiers, C> : declared_as<C, R, P...> {};                   \
  template <class C, class R, class... P>                                                          \
  struct function_signature<R(P..., ...) qualifiers, C> {                                          \
    using type = with_ellipsis<typename declared_as<C, R, P...>::type>;                            \
  };
WEFT_FUNCTION()
WEFT_FUNCTION(const)
WEFT_FUNCTION(&)
WEFT_FUNCTION(const&)
WEFT_FUNCTION(&&)
WEFT_FUNCTION(const&&)
WEFT_FUNCTION(noexcept)
WEFT_FUNCTION(const noexcept)
WEFT_FUNCTION(& noexcept)
WEFT_FUNCTION(const& noexcept)
WEFT_FUNCTION(&& noexcept)
WEFT_FUNCTION(const&& noexcept)
#undef WEFT_FUNCTION

// What is neither a function, nor a member function, nor a constructor.
template <class Pointer>
struct declaration {
  WEFT_REQUIRE((std::is_function_v<Pointer>),
               "weft: only a function or a member function can be called: give its address (&f), "
               "or weft::named<\"name\", &f>.",
               "weft: a value of type ", spelled<Pointer>(),
               " is no function: give the address of a function or member function (&f), or "
               "weft::named<\"name\", &f>.");
  using type = free_declaration<void>;
};
template <class Function>
struct declaration<Function*> : function_signature<Function, void> {};
template <class Function, class C>
struct declaration<Function C::*> : function_signature<Function, C> {};

// Arguments of a constructor travel by value, character arrays as strings.
template <class T>
struct constructor_argument {
  using type = std::decay_t<T>;
};
template <class T>
  requires std::is_same_v<std::decay_t<T>, const char*> || std::is_same_v<std::decay_t<T>, char*>
struct constructor_argument<T> {
  using type = std::string;
};

template <class T, class... Args>
struct declaration<constructor_t<T, Args...>> {
  struct type : free_declaration<T, typename constructor_argument<Args>::type...> {
    static constexpr bool is_constructor = true;
    static constexpr function_style style =
        immediate_to_make<T> ? function_style::immediate : function_style::plain;
  };
};

// A result that does not travel, or not by a description: it can stay at its owner, in an rref.
struct opaque_result {
  static constexpr std::string_view weft_structure = "opaque";
};

template <class Result, class Parameters>
struct signature_of;
template <class Result, class... P>
struct signature_of<Result, std::tuple<P...>> {
  static constexpr std::uint32_t value = structure_hash<Result, P...>();
};

template <class Declaration>
consteval std::uint32_t signature_hash() {
  using result = typename Declaration::result;
  using parameters = typename Declaration::parameters;
  if constexpr (Declaration::is_constructor) {
    return signature_of<opaque_result, parameters>::value;
  } else if constexpr (describable<result>) {
    return signature_of<result, parameters>::value;
  } else {
    return signature_of<opaque_result, parameters>::value;
  }
}

}  // namespace weft::detail
