// SPDX-License-Identifier: BSL-1.0
// Names for objects: worker::publish and peer::lookup.
//
//   me.publish("model", r);                                          // at one worker
//   weft::rref<net> r = co_await p.lookup<net>("model", weft::within(5s));  // at any worker
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

/// Gives an object a name at this worker; the object may live elsewhere. Lookups that wait for the
/// name go on. The worker keeps a reference until `unpublish` or the end of the run, also if the
/// object's owner is lost meanwhile. Publishing the same object again is no error. Any thread. T
/// must have a name that all compilers agree on, as functions must.
///
/// Throws rpc_error, and then publishes nothing:
///   duplicate_name      another object has the name
///   invalid_argument    the name is empty or longer than 1024 bytes; or `r` is empty, or a
///                       reference of another worker of this process
///   the error of a use  `r` is known to be broken
///   shutting_down, or the reason why the run failed, if the run is over
template <class T>
void worker::publish(std::string name, const rref<T>& r) {
  static_assert(detail::check_published<T>());
  if (!r.held_) detail::refuse_empty();
  if (r.me_ != this) {
    throw rpc_error(errc::invalid_argument, "the reference belongs to worker '" + r.me_->name() +
                                                "': publish it there, or pass it on from there");
  }
  use<rref_service>().publish(std::move(name), detail::published_type<T>(), r.held_);
}

template <class T>
void worker::publish(std::string, const T&) {
  static_assert(detail::published_is_an_rref<T>,
                "weft: publish takes a weft::rref; share the object first: "
                "me.publish(name, me.share(object)).");
}

/// Takes a name back. It may then be given to another object, and lookups of it wait. References
/// from earlier lookups stay valid. False if the name was not published. Any thread.
inline bool worker::unpublish(std::string_view name) { return use<rref_service>().unpublish(name); }

/// Finds the object that this peer publishes under `name`. If the name is not published yet, it
/// waits, at most until the call's deadline. It is awaited, cancelled and limited as `call` is. A
/// cancelled lookup leaves nothing behind at the peer. The end of the run waits for lookups as for
/// calls. A lookup changes nothing, so you may repeat it whatever `error::ran()` says.
///
/// Errors, beside those of a call:
///   bad_arguments     at once: the object has another type than T; the text names both
///   timed_out         the text lists names that are published there
///   rref_owner_died   the peer knows that the object's owner is lost
///   invalid_argument  `name` is empty or longer than 1024 bytes
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
