// SPDX-License-Identifier: BSL-1.0
// Slips in the use of a peer or a reference, for which there is a sentence. Return types are
// deduced, so that it comes before what else is wrong with the call.
#pragma once

#include <weft/core/future.hpp>

#include <asio/awaitable.hpp>

#include <string>
#include <type_traits>

// Not in detail, as unqualified calls look for functions in the namespaces of bases, too.
namespace weft::slips {

/// False, so that whoever writes it reads how it is done.
template <class F>
inline constexpr bool function_is_a_template_argument = false;
template <class... Options>
inline constexpr bool lookup_knows_the_type = false;
template <class T>
inline constexpr bool rref_is_a_pointer = false;

/// peer.call(&f, 1), r.call(&T::member, 1)
class verbs {
 public:
  template <class F, class... Args>
  auto call(F&&, Args&&...) const {
    static_assert(function_is_a_template_argument<F>,
                  "weft: the function is a template argument: call<&f>(...), not call(&f, ...).");
    return asio::awaitable<void>();
  }
  template <class F, class... Args>
  auto start(F&&, Args&&...) const {
    static_assert(function_is_a_template_argument<F>,
                  "weft: the function is a template argument: start<&f>(...), not start(&f, ...).");
    return future<void>();
  }
  template <class F, class... Args>
  auto post(F&&, Args&&...) const {
    static_assert(function_is_a_template_argument<F>,
                  "weft: the function is a template argument: post<&f>(...), not post(&f, ...).");
  }
  template <class F, class... Args>
  auto remote(F&&, Args&&...) const {
    static_assert(function_is_a_template_argument<F>,
                  "weft: the function is a template argument: remote<&f>(...), not "
                  "remote(&f, ...).");
  }
};

/// The same, and peer.lookup("model")
class peer_verbs : public verbs {
 public:
  template <class... Options>
  auto lookup(const std::string&, const Options&...) const {
    static_assert(lookup_knows_the_type<Options...>,
                  "weft: lookup needs the type of the object: lookup<T>(\"model\").");
    return asio::awaitable<void>();
  }
};

/// r->member()
template <class T>
class as_pointer {
 public:
  T* operator->() const {
    static_assert(rref_is_a_pointer<T>,
                  "weft: a weft::rref is no pointer: co_await r.call<&T::member>(...), or "
                  "r.local() on the worker that owns the object");
  }
  std::add_lvalue_reference_t<T> operator*() const {
    static_assert(rref_is_a_pointer<T>,
                  "weft: a weft::rref is no pointer: co_await r.call<&T::member>(...), "
                  "co_await r.to_here() for a copy, or *r.local() on the worker that owns it");
  }
};

}  // namespace weft::slips
