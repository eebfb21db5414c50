// SPDX-License-Identifier: BSL-1.0
// A request while it is served, from its arrival to its reply.
//
//   link ─► invocation ─► thunk<f>: decode, run, encode (or keep) ─► serving: reply or failure
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/rpc/call_target.hpp>
#include <weft/rpc/caller.hpp>
#include <weft/rpc/detail/kept_result.hpp>
#include <weft/rpc/detail/registration.hpp>
#include <weft/rpc/detail/upcast.hpp>
#include <weft/rpc/function_entry.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/immediate.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/message.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace weft {

/// Part that a service adds to a request: what the function's scope shall contain, or why the
/// function must not run.
struct scope_setup : message_extension {
  intrusive_ptr<const ref_counted> autograd;
  intrusive_ptr<const thread_mode> mode;
  error refused;
};

/// A request while it is served, as its function's thunk sees it. It is the function's scope, so
/// that a request costs one allocation.
class invocation : public call_scope {
 public:
  message out;
  incoming_message in;
  caller who;
  /// What is under way: it tells what is thrown meanwhile.
  enum class stage : std::uint8_t { arguments, function, result };
  stage reached = stage::arguments;
  bool runs = false;  ///< a coroutine has its frame: what is thrown from now on it did itself

 protected:
  /// Leaves `f` alone if it throws.
  invocation(worker& me, frame&& f, const limits& bounds, error allocation_error,
             std::uint32_t from, std::string_view name)
      : out(bounds), in(std::move(f), bounds, std::move(allocation_error)), who(me, from, name) {}
};

namespace detail {

/// Puts the result where it belongs: into the reply, or to whoever keeps it here.
template <class R>
void deliver(invocation& call, R&& value) {
  using T = std::decay_t<R>;
  call.reached = invocation::stage::result;
  if (auto* keeper = call.in.record().find<result_keeper>()) {
    using held = typename kept_result<T>::held;
    keeper->keep(std::make_shared<held>(std::forward<R>(value)), type_key<held>);
    return;
  }
  if constexpr (encodable<T>) {
    codec<T>::encode(call.out.payload(), value);
  } else {
    throw rpc_error(errc::not_encodable,
                    "a result of this type cannot be sent; leave it where it is with remote<&f>()",
                    call_progress::executed);
  }
}
/// An object that was made where it stays: neither copied nor moved.
template <class T>
void deliver_made(invocation& call, std::shared_ptr<T> made) {
  call.reached = invocation::stage::result;
  auto* keeper = call.in.record().find<result_keeper>();
  if (!keeper) {
    throw rpc_error(errc::bad_arguments,
                    "a constructor can only be called by make<T>(), which keeps the object",
                    call_progress::executed);
  }
  keeper->keep(std::move(made), type_key<T>);
}
inline void deliver_nothing(invocation& call) {
  call.reached = invocation::stage::result;
  if (auto* keeper = call.in.record().find<result_keeper>()) {
    keeper->keep(std::make_shared<std::monostate>(), type_key<std::monostate>);
  }
}

/// The object that a member function runs on, checked: it is one of its arguments.
template <class T>
T& object_of(invocation& call) {
  call.reached = invocation::stage::arguments;
  auto* target = call.in.record().find<call_target>();
  if (!target) {
    throw rpc_error(errc::bad_arguments, "the function needs an object; call it through an rref",
                    call_progress::not_executed);
  }
  if (target->failure) throw rpc_error(target->failure);
  void* const object =
      target->object ? as_type(target->object.get(), target->type, type_key<T>) : nullptr;
  if (!object) {
    throw rpc_error(errc::bad_arguments, "the reference holds an object of another type",
                    call_progress::not_executed);
  }
  call.reached = invocation::stage::function;
  return *static_cast<T*>(object);
}

template <class Tuple>
Tuple decode_arguments(invocation& call) {
  reader r = call.in.payload();
  auto decode = [&]<class... A>(std::type_identity<std::tuple<A...>>) {
    return std::tuple<A...>{codec<A>::decode(r)...};
  };
  Tuple out = decode(std::type_identity<Tuple>());
  r.finish();
  call.reached = invocation::stage::function;
  return out;
}

/// Runs Fn::call(invocation&, arguments) and delivers what it returns.
template <class Fn>
struct thunk {
  static void execute(invocation& call) {
    auto arguments = decode_arguments<typename Fn::arguments>(call);
    if constexpr (requires { requires Fn::is_constructor; }) {
      deliver_made<typename Fn::result>(call, Fn::call(call, std::move(arguments)));
    } else if constexpr (std::is_void_v<typename Fn::result>) {
      static_cast<void>(Fn::call(call, std::move(arguments)));
      deliver_nothing(call);
    } else if constexpr (Fn::style == function_style::immediate) {
      deliver(call, Fn::call(call, std::move(arguments)).value);
    } else {
      deliver(call, Fn::call(call, std::move(arguments)));
    }
  }
  static asio::awaitable<void> start(invocation& call) {
    auto arguments = decode_arguments<typename Fn::arguments>(call);
    auto running = Fn::call(call, std::move(arguments));
    call.runs = true;
    if constexpr (std::is_void_v<typename Fn::result>) {
      co_await std::move(running);
      deliver_nothing(call);
    } else {
      deliver(call, co_await std::move(running));
    }
  }
};

template <class Fn>
inline registration<Fn, thunk> registered{&this_file};

/// Adds injection and object to the arguments and calls the function that F names.
template <auto F>
struct exposed : function<F> {
  using traits = function<F>;
  static auto call(invocation& c, typename traits::arguments&& arguments) {
    return std::apply(
        [&c](auto&&... a) -> decltype(auto) { return with_object(c, std::move(a)...); },
        std::move(arguments));
  }

 protected:
  template <class... A>
  static decltype(auto) with_object(invocation& c, A&&... a) {
    using object = typename traits::object;
    if constexpr (traits::is_constructor) {
      return std::make_shared<typename traits::result>(std::forward<A>(a)...);
    } else if constexpr (traits::is_member) {
      object& self = object_of<object>(c);
      if constexpr (traits::injects == injection::worker) {
        return (self.*traits::pointer)(c.who.self(), std::forward<A>(a)...);
      } else if constexpr (traits::injects == injection::caller) {
        return (self.*traits::pointer)(static_cast<const caller&>(c.who), std::forward<A>(a)...);
      } else {
        return (self.*traits::pointer)(std::forward<A>(a)...);
      }
    } else if constexpr (!std::is_void_v<object>) {
      return injected(c, object_of<object>(c), std::forward<A>(a)...);
    } else {
      return injected(c, std::forward<A>(a)...);
    }
  }
  template <class... A>
  static decltype(auto) injected(invocation& c, A&&... a) {
    if constexpr (traits::injects == injection::worker) {
      return traits::pointer(c.who.self(), std::forward<A>(a)...);
    } else if constexpr (traits::injects == injection::caller) {
      return traits::pointer(static_cast<const caller&>(c.who), std::forward<A>(a)...);
    } else {
      return traits::pointer(std::forward<A>(a)...);
    }
  }
};

}  // namespace detail

}  // namespace weft
