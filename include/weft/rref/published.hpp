// SPDX-License-Identifier: BSL-1.0
// Names for objects: worker::publish and peer::lookup.
//
//   me.publish("model", r);                                          // the worker that has it
//   weft::rref<net> r = co_await p.lookup<net>("model", weft::within(5s));  // any other, or itself
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/rref/detail/look_up.hpp>
#include <weft/rref/detail/published_type.hpp>
#include <weft/rref/rref.hpp>
#include <weft/rref/service.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace weft {

/// The name is `name` at this worker only, wherever the object lives; a reference is held until
/// `unpublish` or the end of the run, also if the object's owner is lost meanwhile. The same object
/// again is no error. Any thread; wakes who waits for the name. T has a name that all compilers
/// agree on, as functions have.
///
/// Throws rpc_error: duplicate_name if another object has the name; invalid_argument if it is empty
/// or longer than 1024 bytes, or if `r` is empty or another worker's; what a use of `r` would throw
/// if it is known to be broken; shutting_down, or why the run failed, when that is over. Then
/// nothing has happened.
template <class T>
void worker::publish(std::string name, const rref<T>& r) {
  static_assert(detail::check_published<T>());
  if (!r.held_) detail::refuse_empty();
  if (r.me_ != this) {
    throw rpc_error(errc::invalid_argument, "the reference is worker '" + r.me_->name() +
                                                "'s, which publishes it itself, or passes it on");
  }
  use<rref_service>().publish(std::move(name), detail::published_type<T>(), r.held_);
}

template <class T>
void worker::publish(std::string, const T&) {
  static_assert(detail::published_is_an_rref<T>,
                "weft: what is published is a weft::rref; share the object first: "
                "me.publish(name, me.share(object)).");
}

/// Takes a name back: it may be given to another object, and who asks for it waits. Whoever has
/// looked it up keeps what it has. False if there is no such name. Any thread.
inline bool worker::unpublish(std::string_view name) { return use<rref_service>().unpublish(name); }

/// The object that this worker publishes under that name, as soon as it does: at most until the
/// call's deadline. Awaited, cancelled and limited as `call` is; who gives up leaves nothing behind
/// there, and the end of the run waits for who does not, as for any call.
///
/// Errors, beside those of a call: bad_arguments, at once, if the object is of another type than T
/// (its text has both); timed_out, with a list of what is published there; rref_owner_died if the
/// object's owner is known there to be lost; invalid_argument if that can be no name. A lookup
/// changes nothing, so it may be repeated whatever `error::ran()` says.
template <class T, class... Options>
auto peer::lookup(std::string name, Options&&... options) const
    -> asio::awaitable<detail::call_return<rref<T>, Options...>> {
  static_assert((is_call_option<std::remove_cvref_t<Options>> && ...),
                "weft: lookup takes a name and options only, such as weft::within(2s)");
  static_assert(!detail::wants_retry<Options...>,
                "weft: lookup takes no retry: it waits until the name is published");
  static_assert(detail::check_published<T>());
  detail::call_settings settings;
  (settings.set(options), ...);
  return detail::look_up<T, detail::call_return<rref<T>, Options...>>(*me_, rank_, std::move(name),
                                                                      settings);
}

}  // namespace weft
