// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/optim/distributed.hpp.
#pragma once

#include <weft/autograd/context.hpp>
#include <weft/autograd/service.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/error.hpp>
#include <weft/core/future.hpp>
#include <weft/core/time.hpp>
#include <weft/optim/detail/owner.hpp>
#include <weft/optim/distributed.hpp>
#include <weft/rpc/expose.hpp>
#include <weft/rref/peer.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/structure.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/this_coro.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace weft::optim {

namespace detail {

/// How far those that were asked got together: as far as each of them did, or nowhere if each got
/// nowhere.
inline call_progress ran_together(const std::vector<error>& failures, std::size_t asked) {
  const auto is = [&](call_progress e) {
    return std::all_of(failures.begin(), failures.end(),
                       [e](const error& f) { return f.ran() == e; });
  };
  const auto nowhere = [](const error& f) {
    return f.ran() == call_progress::not_sent || f.ran() == call_progress::not_executed;
  };
  if (is(call_progress::executed)) return call_progress::executed;
  if (failures.size() < asked) return call_progress::maybe_executed;
  if (is(call_progress::not_sent)) return call_progress::not_sent;
  return std::all_of(failures.begin(), failures.end(), nowhere) ? call_progress::not_executed
                                                                : call_progress::maybe_executed;
}

/// Throws one error for all that failed of those that were asked: the first one's code, with the
/// others' texts.
inline void throw_together(const std::vector<error>& failures, std::size_t asked) {
  if (failures.empty()) return;
  throw rpc_error(failures.front().with([&](error_detail& d) {
    d.ran = ran_together(failures, asked);
    if (failures.size() == 1) return;
    d.text += " (and " + std::to_string(failures.size() - 1) + " more failed: ";
    for (std::size_t i = 1; i < failures.size(); ++i) {
      d.text += (i == 1 ? "" : "; ") + failures[i].message();
    }
    d.text += ")";
  }));
}

/// A released context keeps its name, wherever it was noticed.
[[nodiscard]] inline error as_noticed(const error& e) {
  if (!(e.cause() == errc::autograd_context_gone)) return e;
  return error(make_error_code(errc::autograd_context_gone), e.shared_detail());
}

/// The scope's deadline, not later than `w` allows.
inline void limit(call_scope& s, call_scope::time_point now, const within& w) {
  const auto until = later(now, std::max(w.limit, duration()));
  s.deadline = std::min(s.deadline.value_or(until), until);
}

/// The owner had the step already, and did nothing yet.
[[nodiscard]] inline error asked_before(const error& e) {
  if (e.ran() != call_progress::not_sent) return e;
  return e.with([](error_detail& d) { d.ran = call_progress::not_executed; });
}

}  // namespace detail

inline std::vector<rref<at::Tensor>> share(worker& me, const std::vector<at::Tensor>& tensors) {
  std::vector<rref<at::Tensor>> out;
  out.reserve(tensors.size());
  for (const at::Tensor& t : tensors) out.push_back(me.share(t));
  return out;
}

template <class Optimizer>
asio::awaitable<distributed<Optimizer>>
distributed<Optimizer>::create(worker& me, std::vector<rref<at::Tensor>> parameters,
                               options_type options) {
  if (parameters.empty()) {
    throw rpc_error(errc::invalid_argument, "an optimizer needs at least one parameter");
  }
  std::map<std::uint32_t, std::vector<rref<at::Tensor>>> by_owner;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]) {
      throw rpc_error(errc::invalid_argument,
                      "parameter " + std::to_string(i) + " is an empty reference");
    }
    by_owner[parameters[i].owner().rank()].push_back(std::move(parameters[i]));
  }
  const auto here = scoped(weft::detail::context_of(me), this_scope());
  std::vector<future<expected<part>>> calls;
  for (auto& [rank, theirs] : by_owner) {
    calls.push_back(start_on(here, me.peer(rank).call<detail::make_function<Optimizer>>(
                                       std::move(theirs), options, as_expected)));
  }
  distributed out;
  std::vector<error> failures;
  for (auto& call : calls) {
    const auto given_up = co_await asio::this_coro::cancellation_state;
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    if (throws && given_up.cancelled() != asio::cancellation_type::none) {
      failures.emplace_back(errc::cancelled, "it was given up before all owners had answered",
                            call_progress::maybe_executed);
      break;
    }
    expected<part> made = co_await std::move(call);
    if (made) {
      out.parts_.push_back(std::move(*made));
    } else {
      failures.push_back(std::move(made).error());
    }
  }
  detail::throw_together(failures, calls.size());
  co_return out;
}

template <class Optimizer>
asio::awaitable<distributed<Optimizer>>
distributed<Optimizer>::create(worker& me, std::vector<at::Tensor> parameters,
                               options_type options) {
  return create(me, share(me, parameters), std::move(options));
}

template <class Optimizer>
void distributed<Optimizer>::expose() noexcept {
  weft::expose<detail::make_function<Optimizer>>();
  weft::expose<detail::step_function<Optimizer>>();
  weft::expose<detail::step_in_turn_function<Optimizer>>();
  weft::expose<detail::settled_function<Optimizer>>();
}

template <class Optimizer>
template <class... Options>
asio::awaitable<void> distributed<Optimizer>::step_all(std::vector<part> parts,
                                                       autograd::context ctx, Options... options) {
  const auto& state = ctx.state();
  if (const error gone = ctx.self().use<autograd_service>().ended(state)) {
    throw rpc_error(gone.with([](error_detail& d) { d.ran = call_progress::not_sent; }));
  }
  // In the context's scope, also if the caller's coroutine is not. A step may take several calls,
  // of which all have one limit.
  const intrusive_ptr<call_scope> inner = autograd::detail::scope_with(state);
  (detail::limit(*inner, ctx.self().time().now(), options), ...);
  const asio::any_io_executor inside = ctx.self().executor_in(inner);
  std::vector<future<expected<void>>> calls;
  for (const part& p : parts) {
    calls.push_back(start_on(inside, step_one(p, options...)));
  }
  std::vector<error> failures;
  for (auto& call : calls) {
    // Waiting for the next one, it would throw what is no rpc_error.
    const auto given_up = co_await asio::this_coro::cancellation_state;
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    if (throws && given_up.cancelled() != asio::cancellation_type::none) {
      failures.emplace_back(errc::cancelled, "the step was given up before all owners had answered",
                            call_progress::maybe_executed);
      break;
    }
    const expected<void> stepped = co_await std::move(call);
    if (!stepped) failures.push_back(detail::as_noticed(stepped.error()));
  }
  detail::throw_together(failures, calls.size());
}

template <class Optimizer>
template <class... Options>
asio::awaitable<expected<void>> distributed<Optimizer>::step_one(part p, Options... options) {
  const auto first =
      co_await p.template call<detail::step_function<Optimizer>>(options..., as_expected);
  if (!first) co_return tl::unexpected(first.error());
  std::optional<bool> stepped = *first;
  while (!stepped || !*stepped) {
    if (stepped) {
      // The outcome of a pass can be later at an owner than at who began it.
      const auto settled =
          co_await p.template call<detail::settled_function<Optimizer>>(options..., as_expected);
      if (!settled) co_return tl::unexpected(detail::asked_before(settled.error()));
    }
    const auto in_turn =
        co_await p.template call<detail::step_in_turn_function<Optimizer>>(options..., as_expected);
    if (!in_turn) co_return tl::unexpected(detail::asked_before(in_turn.error()));
    stepped = *in_turn;
  }
  co_return expected<void>();
}

}  // namespace weft::optim

namespace weft {

template <class Optimizer>
struct codec<optim::distributed<Optimizer>> {
  using parts = codec<std::vector<typename optim::distributed<Optimizer>::part>>;
  static constexpr std::size_t min_size = parts::min_size;
  static void encode(writer& w, const optim::distributed<Optimizer>& value) {
    parts::encode(w, value.parts_);
  }
  static optim::distributed<Optimizer> decode(reader& r) {
    optim::distributed<Optimizer> out;
    out.parts_ = parts::decode(r);
    return out;
  }
};

template <class Optimizer>
struct structure<optim::distributed<Optimizer>> {
  static constexpr std::string_view tag = "weft::optim::distributed 1";
  using parts = std::tuple<std::vector<typename optim::distributed<Optimizer>::part>>;
};

}  // namespace weft
