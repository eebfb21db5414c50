// SPDX-License-Identifier: BSL-1.0
// Reads a function's declaration: identity, where it runs, what travels, what weft injects.
//
//   asio::awaitable<at::Tensor> twice(weft::worker& me, const at::Tensor& x, double by);
//         │             │             │                  └──────────┬────────────────┘
//       style         result        injects                     parameters
//
// The return type decides where a function runs: T on the compute pool, asio::awaitable<T> on the
// worker's executor, weft::immediate<T> in place, on the thread that read the request. Constructors
// run on the compute pool, or in place if their class has `immediate_constructor`.
//
// Includes neither Asio nor libtorch; compiles with GCC 12 and Clang 14.
#pragma once

#include <weft/rpc/detail/declaration.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/identity.hpp>
#include <weft/wire/structure.hpp>

#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace weft {

/// F is as in `call<F>`: a pointer to a function or member function, a `named` of one, or a
/// `constructor`. Only the name is checked here; `check_call` (rpc/detail/call_check.hpp) refuses
/// declarations that cannot be called. Constant; any thread may ask.
///
///   static_assert(std::is_same_v<weft::function<&scale>::result, at::Tensor>);
template <auto F>
struct function {
 private:
  using parts =
      typename detail::declaration<std::remove_cv_t<decltype(detail::pointer_of<F>)>>::type;

 public:
  /// The pointer itself (without its `named`), or the `constructor`.
  static constexpr auto pointer = detail::pointer_of<F>;

  static std::string_view name() { return function_name<F>(); }
  /// Whether all compilers find the same name; if not, a run refuses to begin.
  static bool has_portable_name() { return detail::spelling_of<F>().portable; }
  /// These two travel: 64-bit hash of the name, 32-bit hash of result and parameters.
  static std::uint64_t id() { return function_id<F>(); }
  static constexpr std::uint32_t signature = detail::signature_hash<parts>();

  /// The return type without coroutine or immediate, without reference and const. For a
  /// `constructor`: the type that it makes.
  using result = typename parts::result;
  /// std::tuple of the parameters as declared, without the injected one and without the object: a
  /// list of types only.
  using parameters = typename parts::parameters;
  /// std::tuple of the parameters' values, without reference and const: a call holds it, a receiver
  /// decodes it. (Arguments of a constructor: decayed, `const char*` as std::string.)
  using arguments = typename parts::arguments;

  static constexpr function_style style = parts::style;
  static constexpr injection injects = parts::injects;

  /// The type of the object, if it is called through an rref: the class of a member function, or T,
  /// if the first parameter (after an injected one) is `T&`. void: it is called on a peer.
  using object = typename parts::object;

  static constexpr bool is_member = parts::is_member;
  static constexpr bool is_constructor = parts::is_constructor;
  static constexpr bool is_variadic = parts::is_variadic;  // C's `...`
};

}  // namespace weft
