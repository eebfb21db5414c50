// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/context.hpp.
#pragma once

#include <weft/autograd/context.hpp>
#include <weft/autograd/released_contexts.hpp>
#include <weft/linkage.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/immediate.hpp>
#include <weft/rpc/peer.hpp>

#include <set>
#include <utility>
#include <vector>

namespace weft::autograd {

namespace detail {

/// Releases the context however the scope ends.
class release_guard {
 public:
  release_guard(worker& me, intrusive_ptr<open_context> state)
      : me_(me), state_(std::move(state)) {}
  release_guard(const release_guard&) = delete;
  release_guard& operator=(const release_guard&) = delete;
  ~release_guard() { me_.use<autograd_service>().release(state_); }

 private:
  worker& me_;
  intrusive_ptr<open_context> state_;
};

[[nodiscard]] inline intrusive_ptr<weft::call_scope>
scope_with(intrusive_ptr<const ref_counted> context) {
  const intrusive_ptr<const weft::call_scope> outer = this_scope();
  intrusive_ptr<weft::call_scope> inner =
      outer ? outer->copy() : make_intrusive<weft::call_scope>();
  inner->autograd = std::move(context);
  return inner;
}

}  // namespace detail

namespace detail {
[[nodiscard]] inline backward_request request_of(std::vector<at::Tensor> roots,
                                                 backward_options how) {
  backward_request out;
  out.roots = std::move(roots);
  out.gradients = std::move(how.gradients);
  const bool creates = how.graph == gradient_graph::create;
  out.settings.retention =
      how.retention.value_or(creates ? graph_retention::retain : graph_retention::release);
  out.settings.graph = how.graph;
  out.settings.leaves = how.inputs.empty() ? leaf_gradients::all : leaf_gradients::inputs;
  out.inputs = std::move(how.inputs);
  out.then = std::move(how.then);
  out.limit = how.limit;
  return out;
}

/// What came before, on the link from the caller, has been heard here.
WEFT_PROCESS_WIDE inline immediate<void> heard() { return {}; }

/// The creator of the context may release it as soon as it hears of the pass, on other links than
/// those that tell the steps. An owner that is lost does not step; `finish` says so.
inline asio::awaitable<std::vector<at::Tensor>>
until_heard(worker& me, std::set<worker_rank> owners,
            asio::awaitable<std::vector<at::Tensor>> pass) {
  auto captured = co_await std::move(pass);
  for (const worker_rank owner : owners) {
    static_cast<void>(co_await me.peer(owner).call<&heard>(as_expected));
  }
  co_return captured;
}
inline asio::awaitable<std::vector<at::Tensor>>
run_pass(worker& me, const intrusive_ptr<open_context>& state, backward_request what) {
  std::set<worker_rank> owners;
  if (creator_of(state->id) != me.rank()) {
    for (const riding_step& s : what.then) owners.insert(s.owner);
    owners.erase(me.rank());
  }
  auto pass = me.use<autograd_service>().backward(state, std::move(what));
  return owners.empty() ? std::move(pass) : until_heard(me, std::move(owners), std::move(pass));
}
inline asio::awaitable<void> without_result(asio::awaitable<std::vector<at::Tensor>> pass) {
  co_await std::move(pass);
}
}  // namespace detail

inline asio::awaitable<void> context::backward(std::vector<at::Tensor> roots,
                                               backward_options how) const {
  return weft::detail::or_die([&] {
    return detail::without_result(
        detail::run_pass(*me_, state_, detail::request_of(std::move(roots), std::move(how))));
  });
}

inline asio::awaitable<std::vector<at::Tensor>> context::grad(std::vector<at::Tensor> roots,
                                                              std::vector<at::Tensor> inputs,
                                                              backward_options how) const {
  return weft::detail::or_die([&] {
    how.inputs = std::move(inputs);
    backward_request what = detail::request_of(std::move(roots), std::move(how));
    what.settings.leaves = leaf_gradients::inputs;
    what.capture = true;
    return detail::run_pass(*me_, state_, std::move(what));
  });
}

inline context this_context(worker& me) {
  auto state = autograd_service::current();
  if (!state) {
    throw rpc_error(errc::autograd_context_gone,
                    "no autograd context is open in this coroutine: open one with "
                    "weft::autograd::with_context, or make the call inside one",
                    call_progress::not_executed);
  }
  return context(me, std::move(state));
}

template <class Body>
auto with_context(worker& me, Body body, context_options how)
    -> decltype(body(std::declval<context>())) {
  if (const auto outer = this_scope(); outer && outer->autograd) {
    throw rpc_error(errc::invalid_argument,
                    "an autograd context is open in this coroutine already");
  }
  const context ctx(me, me.use<autograd_service>().open(how.mode));
  const detail::release_guard release(me, ctx.state());
  co_return co_await with_scope(weft::detail::context_of(me), detail::scope_with(ctx.state()),
                                body(ctx));
}

}  // namespace weft::autograd
