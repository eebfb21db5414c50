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

/// A reference to a T that lives at a worker. Copies share the object. It lives until the last
/// reference anywhere is gone, and is destroyed on its owner's worker thread. References may be
/// arguments and results, anywhere inside a value. A default-constructed reference is empty. One
/// thread at a time uses one rref; copies may be used by others. A reference may outlive its
/// worker, but then it can only be dropped.
///
/// Errors of every use: those of a call, rref_owner_died (the owner is gone), rref_lost (the object
/// was freed while the reference travelled, after a crash), invalid_argument (the reference is
/// empty). If making the object failed, the use fails with the maker's error. Its text names the
/// function or constructor, and `ran()` is that of the use.
///
/// Pipelining: a reference is usable at once, also as an argument where a T is expected (see
/// peer::call). So a chain is sent before its first call has begun, and runs from worker to worker:
///
///   weft::rref<net> a = me.peer(0).make<net>(128), b = me.peer(1).make<net>(64);
///   weft::rref<at::Tensor> y = b.remote<&net::forward>(a.remote<&net::forward>(x));
template <class T>
class rref : slips::verbs, public slips::as_pointer<T> {
  static_assert(!std::is_void_v<T>,
                "weft: this function returns nothing, so there is no object to refer to; use call, "
                "start or post instead of remote.");

 public:
  using value_type = T;

  rref() = default;

  /// The same object, as one of its bases. The owner's program must contain this conversion, too.
  template <detail::derived_class<T> Derived>
  rref(rref<Derived> derived) noexcept;

  /// The owner, or the worker called for the object (peer::remote). Requires a non-empty reference.
  [[nodiscard]] peer owner() const { return peer(*me_, held_->id().owner); }
  [[nodiscard]] bool is_owner() const { return held_ && held_->id().owner == me_->rank(); }
  [[nodiscard]] rref_id id() const { return held_ ? held_->id() : rref_id{}; }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(held_); }

  /// Waits until the object is made, and copies it on its owner's worker thread, where its
  /// coroutine functions run. T must be copyable and encodable. Awaited anywhere, as calls are.
  template <class... Options>
  [[nodiscard]] auto to_here(Options&&... options) const
      -> asio::awaitable<detail::call_return<T, Options...>>;

  /// The object, at its owner. Throws rref_not_owner elsewhere, invalid_argument if it is not made.
  [[nodiscard]] std::shared_ptr<T> local() const;
  /// Calls a function at the object's owner and waits until the object is made. M is a member of T,
  /// or its first parameter (after an injected one) is `T&` or `const T&`. See peer::call.
  template <auto M, class... Args>
  [[nodiscard]] auto call(Args&&... args) const
      -> asio::awaitable<detail::call_return<typename function<M>::result, Args...>>;
  /// As call, but the result stays at the owner. See peer::remote.
  template <auto M, class... Args>
  [[nodiscard]] auto remote(Args&&... args) const -> detail::remote_reference<M>;
  /// As call, but the call is on its way when `start` returns. See peer::start.
  template <auto M, class... Args>
  [[nodiscard]] auto start(Args&&... args) const -> future<typename function<M>::result>;
  /// As call, but one way. See peer::post.
  template <auto M, class... Args>
  void post(Args&&... args) const;
  /// As peer::open.
  template <auto M, class... Args>
  [[nodiscard]] auto open(Args&&... args) const;
  /// Only for a clear compile error: r.call(&T::member, 1).
  using verbs::call, verbs::remote, verbs::start, verbs::post;

  /// True for one object. If its owner was lost before it got an id, a reference equals its copies.
  friend bool operator==(const rref& a, const rref& b) {
    return a.held_ == b.held_ || (a.id() == b.id() && a.id().serial != 0);
  }
  /// By `id()`, for ordered containers; references of one owner without an id are equivalent.
  /// std::hash works, too.
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
