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
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
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

/// What all of them give, in their order. Throws one error for all that failed.
template <class R>
asio::awaitable<std::vector<weft::detail::stored<R>>>
all_of(std::vector<future<expected<R>>> calls) {
  std::vector<weft::detail::stored<R>> out;
  std::vector<error> failures;
  for (auto& call : calls) {
    // Waiting for the next one, it would throw what is no rpc_error.
    const auto given_up = co_await asio::this_coro::cancellation_state;
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    if (throws && given_up.cancelled() != asio::cancellation_type::none) {
      failures.emplace_back(errc::cancelled, "the caller gave up before all owners had answered",
                            call_progress::maybe_executed);
      break;
    }
    expected<R> one = co_await std::move(call);
    if (!one) {
      failures.push_back(as_noticed(one.error()));
    } else if constexpr (std::is_void_v<R>) {
      out.emplace_back();
    } else {
      out.push_back(std::move(*one));
    }
  }
  throw_together(failures, calls.size());
  co_return out;
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
distributed<Optimizer>::create(worker& me, std::vector<group_type> groups) {
  std::map<std::uint32_t, std::vector<std::vector<rref<at::Tensor>>>> by_owner;
  std::vector<options_type> options;
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    options.push_back(groups[g].options);
    for (rref<at::Tensor>& p : groups[g].parameters) {
      if (!p) {
        throw rpc_error(errc::invalid_argument,
                        "parameter " + std::to_string(number) + " is an empty reference");
      }
      ++number;
      auto& theirs = by_owner[p.owner().rank()];
      theirs.resize(groups.size());
      theirs[g].push_back(std::move(p));
    }
  }
  if (by_owner.empty()) {
    throw rpc_error(errc::invalid_argument, "an optimizer needs at least one parameter");
  }
  const auto here = scoped(weft::detail::context_of(me), this_scope());
  std::vector<future<expected<std::pair<part, std::uint64_t>>>> calls;
  for (auto& [rank, theirs] : by_owner) {
    calls.push_back(start_on(here, me.peer(rank).call<detail::make_function<Optimizer>>(
                                       std::move(theirs), options, as_expected)));
  }
  distributed out;
  auto owned = co_await detail::all_of(std::move(calls));
  for (auto& one : owned) {
    out.riding_.push_back({one.first.owner().rank(), one.second});
    out.parts_.push_back(std::move(one.first));
  }
  co_return out;
}

template <class Optimizer>
asio::awaitable<distributed<Optimizer>>
distributed<Optimizer>::create(worker& me, std::vector<rref<at::Tensor>> parameters,
                               options_type options) {
  std::vector<group_type> one;
  one.push_back({std::move(parameters), std::move(options)});
  return create(me, std::move(one));
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
  weft::expose<detail::gradient_norm_function<Optimizer>>();
  weft::expose<detail::set_options_function<Optimizer>>();
  weft::expose<detail::options_function<Optimizer>>();
  weft::expose<detail::finish_function<Optimizer>>();
  if constexpr (detail::state_is_known<Optimizer>) {
    weft::expose<detail::state_function<Optimizer>>();
    weft::expose<detail::set_state_function<Optimizer>>();
  }
}

namespace detail {
/// Where the calls of a step are made, and how long each may take.
struct step_scope {
  asio::any_io_executor executor;
  within limit;

  /// In the context's scope, also if the caller's coroutine is not. A step may take several calls,
  /// of which all have one limit.
  step_scope(const autograd::context& ctx, const std::optional<within>& given)
      : limit(given.value_or(within(ctx.self().settings().call_deadline))) {
    if (const error gone = ctx.self().use<autograd_service>().ended(ctx.state())) {
      throw rpc_error(gone.with([](error_detail& d) { d.ran = call_progress::not_sent; }));
    }
    const intrusive_ptr<call_scope> inner = autograd::detail::scope_with(ctx.state());
    if (given) detail::limit(*inner, ctx.self().time().now(), *given);
    executor = ctx.self().executor_in(inner);
  }
};

template <class Optimizer>
using part_of = rref<owner_optimizer<Optimizer>>;

template <class Optimizer>
asio::awaitable<expected<void>> step_one(part_of<Optimizer> p, double scale, within limit) {
  const auto first = co_await p.template call<step_function<Optimizer>>(scale, limit, as_expected);
  if (!first) co_return tl::unexpected(first.error());
  std::optional<bool> stepped = *first;
  while (!stepped || !*stepped) {
    if (stepped) {
      // The outcome of a pass can be later at an owner than at who began it.
      const auto settled =
          co_await p.template call<settled_function<Optimizer>>(limit, as_expected);
      if (!settled) co_return tl::unexpected(asked_before(settled.error()));
    }
    const auto in_turn =
        co_await p.template call<step_in_turn_function<Optimizer>>(scale, limit, as_expected);
    if (!in_turn) co_return tl::unexpected(asked_before(in_turn.error()));
    stepped = *in_turn;
  }
  co_return expected<void>();
}

/// Starts what `ask` makes of each part, all at once.
template <class Part, class Ask>
[[nodiscard]] auto start_all(const asio::any_io_executor& on, const std::vector<Part>& parts,
                             Ask ask) {
  std::vector<decltype(start_on(on, ask(parts.front())))> calls;
  for (const Part& p : parts) calls.push_back(start_on(on, ask(p)));
  return calls;
}
/// From the parts' worker, in the scope of who asks.
template <class Part, class Ask>
[[nodiscard]] auto start_all(const std::vector<Part>& parts, Ask ask) {
  asio::any_io_executor here;
  if (!parts.empty()) {
    here = scoped(weft::detail::context_of(parts.front().owner().self()), this_scope());
  }
  return start_all(here, parts, std::move(ask));
}

template <class Optimizer>
asio::awaitable<double> norm_of_all(std::vector<part_of<Optimizer>> parts, step_scope inside) {
  auto calls = start_all(inside.executor, parts, [&](const auto& p) {
    return p.template call<gradient_norm_function<Optimizer>>(inside.limit, as_expected);
  });
  double norm = 0;
  for (const double one : co_await all_of(std::move(calls))) norm = std::hypot(norm, one);
  co_return norm;
}

template <class Optimizer>
asio::awaitable<double> norm_in(std::vector<part_of<Optimizer>> parts, autograd::context ctx) {
  co_return co_await norm_of_all<Optimizer>(std::move(parts), step_scope(ctx, std::nullopt));
}

template <class Optimizer>
asio::awaitable<void> set_all_options(std::vector<part_of<Optimizer>> parts,
                                      std::optional<std::uint64_t> group,
                                      typename optimizer_traits<Optimizer>::options options) {
  auto calls = start_all(parts, [&](const auto& p) {
    return p.template call<set_options_function<Optimizer>>(group, options, as_expected);
  });
  co_await all_of(std::move(calls));
}

template <class Optimizer>
asio::awaitable<void> finish_all(std::vector<part_of<Optimizer>> parts) {
  auto calls = start_all(parts, [](const auto& p) {
    return p.template call<finish_function<Optimizer>>(as_expected);
  });
  co_await all_of(std::move(calls));
}

template <class Optimizer>
asio::awaitable<std::vector<typename optimizer_traits<Optimizer>::options>>
options_of(std::vector<part_of<Optimizer>> parts) {
  if (parts.empty()) throw rpc_error(errc::invalid_argument, "an empty optimizer has no options");
  co_return co_await parts.front().template call<options_function<Optimizer>>();
}

template <class Optimizer>
asio::awaitable<std::vector<std::vector<parameter_state>>>
state_of_all(std::vector<part_of<Optimizer>> parts) {
  auto calls = start_all(
      parts, [](const auto& p) { return p.template call<state_function<Optimizer>>(as_expected); });
  co_return co_await all_of(std::move(calls));
}

template <class Optimizer>
asio::awaitable<void> load_all(std::vector<part_of<Optimizer>> parts,
                               std::vector<std::vector<parameter_state>> state) {
  if (state.size() != parts.size()) {
    throw rpc_error(errc::invalid_argument, "the state is of " + std::to_string(state.size()) +
                                                " owners, and the optimizer has " +
                                                std::to_string(parts.size()));
  }
  auto calls = start_all(parts, [next = state.begin()](const auto& p) mutable {
    return p.template call<set_state_function<Optimizer>>(std::move(*next++), as_expected);
  });
  co_await all_of(std::move(calls));
}

/// What gradients are multiplied with. Where it fails nobody steps.
template <class Optimizer>
asio::awaitable<double> scale_to_clip(std::vector<part_of<Optimizer>> parts, step_scope inside,
                                      double most) {
  if (!(most >= 0)) {
    throw rpc_error(errc::invalid_argument,
                    "gradients cannot be clipped to a norm of " + std::to_string(most));
  }
  error why;
  double norm = 0;
  try {
    norm = co_await norm_of_all<Optimizer>(std::move(parts), std::move(inside));
  } catch (const rpc_error& e) {
    why = e.error();
  }
  if (why) {
    throw rpc_error(why.with([](error_detail& d) {
      if (d.ran != call_progress::not_sent) d.ran = call_progress::not_executed;
    }));
  }
  if (!std::isfinite(norm)) {
    throw rpc_error(errc::invalid_argument,
                    "the norm of the gradients is " + std::to_string(norm) +
                        ", so that they cannot be clipped",
                    call_progress::not_executed);
  }
  co_return std::min(1.0, most / (norm + 1e-6));
}

template <class Optimizer>
asio::awaitable<void> step_all(std::vector<part_of<Optimizer>> parts, autograd::context ctx,
                               step_settings how) {
  const step_scope inside(ctx, how.limit);
  double scale = 1;
  if (how.clip) scale = co_await scale_to_clip<Optimizer>(parts, inside, how.clip->most);
  auto calls = start_all(inside.executor, parts, [&](const auto& p) {
    return step_one<Optimizer>(p, scale, inside.limit);
  });
  co_await all_of(std::move(calls));
}

}  // namespace detail

template <class Optimizer>
template <step_option... Options>
asio::awaitable<void> distributed<Optimizer>::step(autograd::context ctx,
                                                   Options... options) const {
  return detail::step_all<Optimizer>(parts_, std::move(ctx), detail::step_settings(options...));
}
template <class Optimizer>
asio::awaitable<void> distributed<Optimizer>::finish() const {
  return detail::finish_all<Optimizer>(parts_);
}
template <class Optimizer>
asio::awaitable<double> distributed<Optimizer>::gradient_norm(autograd::context ctx) const {
  return detail::norm_in<Optimizer>(parts_, std::move(ctx));
}
template <class Optimizer>
asio::awaitable<void> distributed<Optimizer>::set_options(options_type options) const {
  return detail::set_all_options<Optimizer>(parts_, std::nullopt, std::move(options));
}
template <class Optimizer>
asio::awaitable<void> distributed<Optimizer>::set_options(std::size_t group,
                                                          options_type options) const {
  return detail::set_all_options<Optimizer>(parts_, group, std::move(options));
}
template <class Optimizer>
auto distributed<Optimizer>::options() const -> asio::awaitable<std::vector<options_type>> {
  return detail::options_of<Optimizer>(parts_);
}
template <class Optimizer>
auto distributed<Optimizer>::state_dict() const -> asio::awaitable<state_dict_type> {
  static_assert(detail::check_state<Optimizer>());
  return detail::state_of_all<Optimizer>(parts_);
}
template <class Optimizer>
asio::awaitable<void> distributed<Optimizer>::load_state_dict(state_dict_type state) const {
  static_assert(detail::check_state<Optimizer>());
  return detail::load_all<Optimizer>(parts_, std::move(state));
}

}  // namespace weft::optim

namespace weft {

template <class Optimizer>
struct codec<optim::distributed<Optimizer>> {
  using parts = codec<std::vector<typename optim::distributed<Optimizer>::part>>;
  using riding = codec<std::vector<autograd::riding_step>>;
  static constexpr std::size_t min_size = parts::min_size + riding::min_size;
  static void encode(writer& w, const optim::distributed<Optimizer>& value) {
    parts::encode(w, value.parts_);
    riding::encode(w, value.riding_);
  }
  static optim::distributed<Optimizer> decode(reader& r) {
    optim::distributed<Optimizer> out;
    out.parts_ = parts::decode(r);
    out.riding_ = riding::decode(r);
    for (const auto& part : out.parts_) {
      if (!part) r.fail("an empty reference to an optimizer");
    }
    return out;
  }
};

template <class Optimizer>
struct structure<optim::distributed<Optimizer>> {
  static constexpr std::string_view tag = "weft::optim::distributed 2";
  using parts = std::tuple<std::vector<typename optim::distributed<Optimizer>::part>,
                           std::vector<autograd::riding_step>>;
};

}  // namespace weft
