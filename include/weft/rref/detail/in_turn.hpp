// SPDX-License-Identifier: BSL-1.0
// Functions of objects that serve one call at a time.
#pragma once

#include <weft/core/detail/fifo_lock.hpp>
#include <weft/rpc/call_target.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/retry.hpp>
#include <weft/rref/detail/adapted.hpp>
#include <weft/rref/rref.hpp>
#include <weft/wire/detail/type_name.hpp>

#include <asio/awaitable.hpp>

#include <memory>
#include <string>
#include <utility>

namespace weft {
template <class T>
class exclusive;
}

namespace weft::detail {

/// Fn on the T of an exclusive<T>, once it is its turn.
template <class Fn, class T>
struct in_turn : adapted<Fn, in_turn<Fn, T>> {
  // Of T: a function of a base is another one for each class.
  static std::string suffix() {
    const std::string of = spelled_class<T>();
    return " in turn of " + (of.empty() ? std::string(type_name<T>()) : of);
  }
  static bool has_portable_name() { return Fn::has_portable_name() && !spelled_class<T>().empty(); }

  static asio::awaitable<typename Fn::result> call(invocation& c, typename Fn::arguments&& given) {
    exclusive<T>& all = object_of<exclusive<T>>(c);
    c.reached = invocation::stage::arguments;  // not run yet
    const fifo_lock::place here(all.lock_);
    co_await here.comes();
    call_target& target = *c.in.record().find<call_target>();
    target.object = std::shared_ptr<void>(target.object, &all.object_);
    target.type = type_key<T>;
    co_return co_await run_in_its_place<Fn>(c, std::move(given));
  }
};

template <class Fn, class T>
inline constexpr repeats repeats_of<in_turn<Fn, T>> = repeats_of<Fn>;

template <class T>
struct called_object<exclusive<T>> {
  using type = T;
  template <class Fn>
  using call = in_turn<Fn, T>;
};

}  // namespace weft::detail
