// SPDX-License-Identifier: BSL-1.0
// A worker as another one sees it, to call functions there. engine/link/link.hpp draws the way of
// one call, there and back.
#pragma once

#include <weft/core/future.hpp>
#include <weft/core/random.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/caller.hpp>
#include <weft/rpc/detail/call_check.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/detail/kept_result.hpp>
#include <weft/rpc/detail/slips.hpp>
#include <weft/rpc/function.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/immediate.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <string>

namespace weft {

/// Cheap to copy; must not outlive its worker. Names a process, never its successor. Any thread may
/// use it; each member says where its work runs and its wait resumes.
///
///   weft::peer p = me.peer("helper");
///   at::Tensor y = co_await p.call<&scale>(x, 2.0, weft::within(2s));
class peer : slips::peer_verbs {
 public:
  peer(worker& me, std::uint32_t rank) noexcept : me_(&me), rank_(rank) {}

  /// Runs F there and waits for its result. To choose one of several overloads, cast:
  /// `call<static_cast<int (*)(int)>(&f)>(1)`. Options (`within`, `as_expected`, `retry`) are last.
  /// `call` converts the arguments to F's parameter types and holds them before it returns.
  /// A tensor is sent from where it is, and arrives in memory of its own: do not change it in place
  /// before the call has ended. If F returns a tensor that others go on to change, F must return
  /// `weft::copied(t)`. An rref<T>, ready or not, may be given for a T: before F runs, the callee
  /// fetches the value, in the call's scope. Later calls may begin meanwhile. If the value cannot
  /// be fetched, the call fails with not_executed and names the argument.
  /// May be awaited on any executor, and resumes there. On another executor than the worker's it
  /// inherits nothing (deadline, autograd context, trace). While the peer's window or the outbox is
  /// full, it waits in line until its deadline. If that has passed already, nothing is sent.
  /// Errors: every errc (see `error::safe_to_repeat`). Cancelling the awaiting coroutine cancels
  /// the call, here and there. If a codec or libtorch throws, the call fails with not_encodable and
  /// the exception's text, also if libtorch lacks memory. std::bad_alloc is resource_exhausted.
  template <auto F, class... Args>
  [[nodiscard]] auto call(Args&&... args) const
      -> asio::awaitable<detail::call_return<typename function<F>::result, Args...>>;

  /// As `call`, but it is queued when `start` returns. It is written when all handlers that are
  /// ready have run; if one lasts, the helper writes it after about 1.5 ms (9 ms behind many short
  /// ones). Any thread. In a function that weft runs it inherits as `call` does, on a thread of
  /// your own nothing. Throws rpc_error too_many_calls while the peer's window or the outbox is
  /// full; the future has all other errors.
  template <auto F, class... Args>
  [[nodiscard]] auto start(Args&&... args) const -> future<typename function<F>::result>;

  /// One way: no reply. Leaves as `start` does; any thread. It has a deadline only with `within`,
  /// and is served before the run ends. The callee counts failed ones (worker_stats::posts_failed),
  /// and prints the first of each function. too_many_calls, peer_died, not_encodable are thrown.
  template <auto F, class... Args>
  void post(Args&&... args) const;

  /// Waits in line for room for a request, as calls do, after too_many_calls of `start` or `post`.
  /// It waits for the time of `within`, or as long as a call. On any executor. Throws as calls do.
  template <class... Options>
  [[nodiscard]] asio::awaitable<void> room(const Options&... options) const;

  /// Runs F there and leaves the result there. Any thread; inherits as `start`. The reference is
  /// usable at once. If F or the way to it fails, each use of the reference fails. If nobody uses
  /// it, the callee counts the error (`creations_failed`) and prints it, as for a post. If F
  /// returns an rref<T>, this returns an rref<T>, too. Calls on it go there and, once F has
  /// returned, on to that object, in order.
  template <auto F, class... Args>
  [[nodiscard]] auto remote(Args&&... args) const -> detail::remote_reference<F>;

  /// Calls F, and awaits a std::tuple of the other ends of its streams: see weft/rref/stream.hpp.
  template <auto F, class... Args>
  [[nodiscard]] auto open(Args&&... args) const;
  /// Makes a T there, on the compute pool or in place (`immediate_constructor`); as with `remote`.
  template <class T, class... Args>
  [[nodiscard]] rref<T> make(Args&&... args) const;
  /// Waits until a T is published there under `name`, and gives it: see weft/rref/published.hpp.
  template <class T, class... Options>
  [[nodiscard]] auto lookup(std::string name, Options&&... options) const
      -> asio::awaitable<detail::call_return<rref<T>, Options...>>;

  [[nodiscard]] const std::string& name() const noexcept { return link().name(); }
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] const id128& incarnation() const noexcept;
  /// "tcp", "unix", "self", ...; empty while not connected.
  [[nodiscard]] std::string transport() const { return link().transport(); }
  [[nodiscard]] worker& self() const noexcept { return *me_; }
  friend bool operator==(const peer& a, const peer& b) noexcept {
    return a.me_ == b.me_ && a.rank_ == b.rank_;
  }
  /// Mistakes that a static_assert explains: peer.call(&f, 1), peer.lookup("model").
  using verbs::call, verbs::start, verbs::post, verbs::remote, peer_verbs::lookup;

 private:
  template <class>
  friend class rref;
  [[nodiscard]] weft::link& link() const noexcept { return me_->link_to(rank_); }

  worker* me_;
  std::uint32_t rank_;
};

}  // namespace weft

#include <weft/rpc/impl/peer.hpp>
