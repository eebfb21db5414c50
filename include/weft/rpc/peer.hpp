// SPDX-License-Identifier: BSL-1.0
// A worker as another one sees it: the way to call functions there. engine/link/link.hpp draws the
// walk of one call, there and back.
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

/// Cheap to copy; lives no longer than its worker. Names a process, never its successor. Any thread
/// may use it; what it starts runs, and what it awaits is answered, as each member says.
///   weft::peer p = me.peer("helper");
///   at::Tensor y = co_await p.call<&scale>(x, 2.0, weft::within(2s));
class peer : slips::peer_verbs {
 public:
  peer(worker& me, std::uint32_t rank) noexcept : me_(&me), rank_(rank) {}

  /// Runs F there and waits for its result. One of several overloads is chosen by a cast,
  /// `call<static_cast<int (*)(int)>(&f)>(1)`; options (`within`, `as_expected`, `retry`) are last.
  /// Arguments are converted to F's parameter types and held before `call` returns. Tensors are
  /// sent from where they are, and arrive in memory of their own: do not write to them in place
  /// before it completes; F returns `weft::copied(t)` of what others change. An rref<T>, ready or
  /// not, may be given for a T: the callee gets the value first, in the call's scope, while later
  /// calls may begin; what fails then is named, and not_executed.
  /// May be awaited on any executor, and resumes there; one of another than the worker's inherits
  /// nothing (deadline, autograd context, trace). While the peer's window or the outbox is full it
  /// waits in line until its deadline. If that has passed already, nothing is sent.
  /// Errors: every errc (see `error::safe_to_repeat`). Cancelling who awaits it cancels the call,
  /// here and there. What a codec or libtorch throws (also for lack of memory) is not_encodable,
  /// with its words; any other lack of memory is resource_exhausted.
  template <auto F, class... Args>
  [[nodiscard]] auto call(Args&&... args) const
      -> asio::awaitable<detail::call_return<typename function<F>::result, Args...>>;

  /// As `call`, but it is on its way when `start` returns. If other calls to the peer are under way
  /// or were sent in this turn of the worker's loop, it leaves when the turn ends, or has lasted
  /// for 50 to 150 µs (behind many short turns up to 1.7 ms, and a time slice of its core if no
  /// other is free). Any thread: in a function that weft runs it inherits as `call` does, on a
  /// user's own nothing, and there it leaves when the worker's thread gets to it. Throws rpc_error
  /// too_many_calls while the peer's window or the outbox is full; other errors are the future's.
  template <auto F, class... Args>
  [[nodiscard]] auto start(Args&&... args) const -> future<typename function<F>::result>;

  /// One way: no reply. Leaves as `start` does, and from any thread. It has a deadline only if it
  /// is given one (`within`), and is served before the run ends. Errors there are counted
  /// (`worker_stats::posts_failed`), and the first of each function is said on standard error
  /// there; an error here (too_many_calls, peer_died, not_encodable) is thrown.
  template <auto F, class... Args>
  void post(Args&&... args) const;

  /// Waits in line for room for a request, as calls do, after too_many_calls of `start` or `post`;
  /// `within`, or as long as a call. On any executor. Throws as calls do.
  template <class... Options>
  [[nodiscard]] asio::awaitable<void> room(const Options&... options) const;

  /// Runs F there and leaves the result there. Any thread, inherits as `start`. Usable at once; an
  /// error of F or of the way to it is met by whoever uses the reference. One that nobody meets is
  /// counted and said there as a post's (`creations_failed`). Of an F that returns an rref<T>, one,
  /// too: what is called on it goes there and, once F has returned, on to that object, in order.
  template <auto F, class... Args>
  [[nodiscard]] auto remote(Args&&... args) const -> detail::remote_reference<F>;

  /// Builds a T there, on the compute pool or in place (`immediate_constructor`); as with `remote`.
  template <class T, class... Args>
  [[nodiscard]] rref<T> make(Args&&... args) const;

  /// The T that is published there, once it is: see weft/rref/published.hpp.
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

  /// For these there is a sentence: peer.call(&f, 1), peer.lookup("model").
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
