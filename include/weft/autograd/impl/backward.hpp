// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/backward.hpp.
#pragma once

#include <weft/autograd/backward.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/detail/as_error.hpp>
#include <weft/core/error.hpp>
#include <weft/core/time.hpp>
#include <weft/linkage.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/peer.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace weft::autograd {

namespace detail {

/// At the owner of the root.
WEFT_PROCESS_WIDE inline asio::awaitable<void>
backward_here(worker& me, at::Tensor& root, std::vector<at::Tensor> gradients,
              graph_retention retention, gradient_graph graph, std::vector<riding_step> then) {
  co_await this_context(me).backward(root, {.retention = retention,
                                            .gradients = std::move(gradients),
                                            .graph = graph,
                                            .then = std::move(then)});
}

/// Wherever this header is compiled in, the function can be called.
inline void expose_backward() noexcept { weft::expose<&backward_here>(); }

}  // namespace detail

inline asio::awaitable<void> backward(context ctx, rref<at::Tensor> root, backward_options how) {
  if (!how.inputs.empty()) {
    throw rpc_error(errc::invalid_argument,
                    "backward from a reference takes no inputs: they are tensors of the worker "
                    "where the pass begins, so call a function there");
  }
  worker& me = ctx.self();
  const pass_settings settings =
      detail::request_of({}, {how.retention, {}, {}, {}, how.graph}).settings;
  const auto scope = detail::scope_with(ctx.state());
  if (how.limit) {
    const auto until = later(me.time().now(), std::max(*how.limit, duration()));
    scope->deadline = std::min(scope->deadline.value_or(until), until);
  }
  try {
    co_await with_scope(weft::detail::context_of(me), scope,
                        root.call<&detail::backward_here>(std::move(how.gradients),
                                                          settings.retention, settings.graph,
                                                          std::move(how.then)));
  } catch (const rpc_error& e) {  // the error of the pass is the same wherever it begins
    throw rpc_error(weft::detail::as_thrown_there(e.error()));
  }
}

}  // namespace weft::autograd
