// SPDX-License-Identifier: BSL-1.0
// References to objects of other workers: like std::shared_ptr, across processes.
#pragma once

#include <weft/core/future.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/detail/slips.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rref/service.hpp>
#include <weft/wire/codec.hpp>

#include <asio/awaitable.hpp>

#include <compare>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace weft {

/// Copying shares; the object lives until the last reference anywhere is gone, and is destroyed on
/// its owner's thread. References may be arguments and results, anywhere inside a value. A default-
/// constructed one is empty. Distinct rrefs may be used from different threads; they may outlive
/// their worker, and are useless then.
///
/// Errors of every use: rref_owner_died (the owner is gone), rref_lost (the object was freed while
/// the reference travelled, after a crash), what making the object threw (its text names what was
/// to make it; `ran()` is that of the use), invalid_argument (it is empty), and those of a call.
///
/// Pipelining: a reference is usable at once, also as an argument where a T is expected (see
/// peer::call), so that a chain is on its way before its first link has begun, and runs from worker
/// to worker:
///
///   weft::rref<net> a = me.peer(0).make<net>(128), b = me.peer(1).make<net>(64);
///   weft::rref<at::Tensor> y = b.remote<&net::forward>(a.remote<&net::forward>(x));
template <class T>
class rref : slips::verbs, public slips::as_pointer<T> {
  static_assert(!std::is_void_v<T>,
                "weft: a function that returns nothing leaves nothing to refer to; use call, start "
                "or post instead of remote.");

 public:
  using value_type = T;

  rref() = default;

  /// The same object as one of its bases; its owner's program must convert so somewhere, too.
  template <detail::derived_class<T> Derived>
  rref(rref<Derived> derived) noexcept;

  /// Who holds the object, or was called for it (peer::remote). Requires a non-empty reference.
  [[nodiscard]] peer owner() const { return peer(*me_, held_->id().owner); }
  [[nodiscard]] bool is_owner() const { return held_ && held_->id().owner == me_->rank(); }
  [[nodiscard]] rref_id id() const { return held_ ? held_->id() : rref_id{}; }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(held_); }

  /// A copy of the object, waiting until it is made; copied on its worker's thread, where its
  /// coroutine functions run. T must be copyable and encodable. Awaited anywhere, as calls are.
  template <class... Options>
  [[nodiscard]] auto to_here(Options&&... options) const
      -> asio::awaitable<detail::call_return<T, Options...>>;

  /// The object itself, for its owner only. Throws rpc_error: rref_not_owner; invalid_argument if
  /// it is still being made.
  [[nodiscard]] std::shared_ptr<T> local() const;

  /// Calls a member function of T, or a function whose first parameter (after an injected one) is
  /// `T&` or `const T&`, where the object is; waits until that is made. See peer::call.
  template <auto M, class... Args>
  [[nodiscard]] auto call(Args&&... args) const
      -> asio::awaitable<detail::call_return<typename function<M>::result, Args...>>;
  /// As call, but the result stays there. See peer::remote.
  template <auto M, class... Args>
  [[nodiscard]] auto remote(Args&&... args) const -> detail::remote_reference<M>;
  /// As call, but it is on its way when `start` returns. See peer::start.
  template <auto M, class... Args>
  [[nodiscard]] auto start(Args&&... args) const -> future<typename function<M>::result>;
  /// As call, but one way. See peer::post.
  template <auto M, class... Args>
  void post(Args&&... args) const;

  /// Slips, for which there is a sentence: r.call(&T::member, 1).
  using verbs::call, verbs::remote, verbs::start, verbs::post;

  /// Of one object. One that never got a name, since its owner was lost, equals its copies only.
  friend bool operator==(const rref& a, const rref& b) {
    return a.held_ == b.held_ || (a.id() == b.id() && a.id().serial != 0);
  }
  /// For ordered containers, by `id()`; those without a name are equivalent. Also std::hash.
  friend std::weak_ordering operator<=>(const rref& a, const rref& b) { return a.id() <=> b.id(); }

 private:
  friend class worker;
  friend class peer;
  template <class>
  friend class rref;
  friend struct codec<rref<T>>;
  friend struct detail::rref_access;
  friend struct detail::forwarding_address;

  rref(worker& me, intrusive_ptr<detail::reference> held) : me_(&me), held_(std::move(held)) {}
  [[nodiscard]] rref_service& service() const;

  worker* me_ = nullptr;
  intrusive_ptr<detail::reference> held_;
};

}  // namespace weft

template <class T>
struct std::hash<weft::rref<T>> {
  std::size_t operator()(const weft::rref<T>& r) const noexcept {
    return std::hash<weft::rref_id>()(r.id());
  }
};

#include <weft/rref/detail/forwarding_address.hpp>
#include <weft/rref/detail/resolving.hpp>
#include <weft/rref/impl/rref.hpp>
