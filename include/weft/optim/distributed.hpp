// SPDX-License-Identifier: BSL-1.0
// Optimizers over parameters of several workers. Each parameter is changed where it lives, by a
// libtorch optimizer there; only calls travel, no gradients and no values.
//
//   distributed<Adam> ──rref──► worker 0: Adam over its parameters
//                     └─rref──► worker 2: Adam over its parameters
#pragma once

#include <weft/autograd/context.hpp>
#include <weft/core/future.hpp>
#include <weft/optim/options.hpp>
#include <weft/optim/owner.hpp>
#include <weft/rref/peer.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace weft::optim {

/// References to parameters of this worker, such as a module's `parameters()`.
[[nodiscard]] inline std::vector<rref<at::Tensor>> share(worker& me,
                                                         const std::vector<at::Tensor>& tensors) {
  std::vector<rref<at::Tensor>> out;
  out.reserve(tensors.size());
  for (const at::Tensor& t : tensors) out.push_back(me.share(t));
  return out;
}

namespace detail {

template <class Optimizer>
inline constexpr bool header_is_included = requires { sizeof(Optimizer); };
template <class Optimizer>
inline constexpr bool is_libtorch_optimizer = std::derived_from<Optimizer, torch::optim::Optimizer>;
template <class Optimizer>
inline constexpr bool step_takes_no_closure = requires(Optimizer& o) { o.step(); };
template <class Optimizer>
inline constexpr bool options_are_known =
    requires { typename optimizer_traits<Optimizer>::options; };

template <class Optimizer>
consteval bool check_optimizer() {
  if constexpr (!header_is_included<Optimizer>) {
    static_assert(header_is_included<Optimizer>,
                  "weft: this optimizer is only declared; include its header, such as "
                  "<torch/optim/adam.h>.");
  } else if constexpr (!is_libtorch_optimizer<Optimizer>) {
    static_assert(is_libtorch_optimizer<Optimizer>,
                  "weft: optim::distributed needs an optimizer that is derived from "
                  "torch::optim::Optimizer.");
  } else if constexpr (!step_takes_no_closure<Optimizer>) {
    static_assert(step_takes_no_closure<Optimizer>,
                  "weft: this optimizer's step calls a closure that computes the loss anew, and a "
                  "closure cannot cross to other workers; use an optimizer whose step takes none "
                  "(Adam, AdamW, SGD, Adagrad, RMSprop).");
  } else {
    static_assert(options_are_known<Optimizer>,
                  "weft: weft does not know this optimizer's options; specialise "
                  "weft::optim::optimizer_traits for it.");
  }
  return true;
}

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

}  // namespace detail

/// A handle of optimizers at the owners of parameters, such as distributed<torch::optim::Adam>.
/// Copies share them, also at other workers: it can be an argument or result. They live as long as
/// the last copy. Thread safety: one thread at a time for each copy.
///
/// Several optimizers may work on the same parameters at once, and several trainers may step one
/// optimizer: steps that write the same memory wait for each other, without holding a thread, and
/// none is lost. Forward and backward do not wait for steps, as in Hogwild.
///
/// A parameter whose memory is replaced (torch::load, Module::to, set_data) is followed; if it gets
/// another shape, dtype or device, the next step throws and asks for a new optimizer. Memory is
/// replaced between steps, not during one.
template <class Optimizer>
class distributed {
  static_assert(detail::check_optimizer<Optimizer>());

 public:
  using options_type = typename optimizer_traits<Optimizer>::options;

  /// Empty: `step` does nothing.
  distributed() = default;

  /// Makes one optimizer at each worker that owns some of the parameters, and waits for all of
  /// them, and for parameters that are still being made. Parameters must be leaves; the optimizer
  /// keeps them alive. The options are those of libtorch, and are checked by it.
  ///
  /// Errors: invalid_argument (no parameters, an empty reference), remote_exception (what the
  /// optimizer's constructor threw), those of a call and of using a reference. If several workers
  /// fail, one error names them all.
  [[nodiscard]] static asio::awaitable<distributed>
  create(worker& me, std::vector<rref<at::Tensor>> parameters, options_type options) {
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
    const auto here = scoped(me.context(), this_scope());
    std::vector<future<expected<part>>> calls;
    for (auto& [rank, theirs] : by_owner) {
      calls.push_back(start_on(here, me.peer(rank).call<detail::make_function<Optimizer>>(
                                         std::move(theirs), options, as_expected)));
    }
    distributed out;
    std::vector<error> failures;
    for (auto& call : calls) {
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

  /// As above, for parameters of this worker.
  [[nodiscard]] static asio::awaitable<distributed>
  create(worker& me, std::vector<at::Tensor> parameters, options_type options) {
    return create(me, share(me, parameters), std::move(options));
  }

  /// Steps at all owners in parallel, with the gradients that `ctx` has there, and waits for all.
  /// A parameter without gradient is left as it is. `.grad` is neither read nor written. The call
  /// option `within` may follow.
  ///
  /// Errors: autograd_context_gone (the context was released), remote_exception (what the
  /// optimizer threw), those of a call and of using a reference. If several workers fail, one
  /// error names them all; the others have stepped, and `ran()` is that of all together.
  template <std::same_as<within>... Options>
  [[nodiscard]] asio::awaitable<void> step(autograd::context ctx, Options... options) const {
    return step_all(parts_, std::move(ctx), options...);
  }

  /// How many workers own parameters.
  [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }

  /// Makes a program able to own parameters that it does not optimize itself. Effective wherever
  /// compiled in, as weft::expose is.
  static void expose() noexcept {
    weft::expose<detail::make_function<Optimizer>>();
    weft::expose<detail::step_function<Optimizer>>();
    weft::expose<detail::step_in_turn_function<Optimizer>>();
    weft::expose<detail::settled_function<Optimizer>>();
  }

 private:
  using part = rref<detail::owner_optimizer<Optimizer>>;
  friend struct codec<distributed>;
  friend struct structure<distributed>;

  template <class... Options>
  static asio::awaitable<void> step_all(std::vector<part> parts, autograd::context ctx,
                                        Options... options) {
    const auto& state = ctx.state();
    if (const error gone = ctx.self().use<autograd_service>().ended(state)) {
      throw rpc_error(gone.with([](error_detail& d) { d.ran = call_progress::not_sent; }));
    }
    // In the context's scope, also if the caller's coroutine is not. A step may take several calls,
    // of which all have one limit.
    const intrusive_ptr<call_scope> inner = autograd::detail::scope_with(state);
    (limit(*inner, ctx.self().time().now(), options), ...);
    const asio::any_io_executor inside = ctx.self().executor_in(inner);
    std::vector<future<expected<void>>> calls;
    for (const part& p : parts) {
      calls.push_back(start_on(inside, step_one(p, options...)));
    }
    std::vector<error> failures;
    for (auto& call : calls) {
      const expected<void> stepped = co_await std::move(call);
      if (!stepped) failures.push_back(detail::as_noticed(stepped.error()));
    }
    detail::throw_together(failures, calls.size());
  }

  static void limit(call_scope& s, call_scope::time_point now, const within& w) {
    const auto until = later(now, std::max(w.limit, duration()));
    s.deadline = std::min(s.deadline.value_or(until), until);
  }

  template <class... Options>
  static asio::awaitable<expected<void>> step_one(part p, Options... options) {
    const auto first =
        co_await p.template call<detail::step_function<Optimizer>>(options..., as_expected);
    if (!first) co_return tl::unexpected(first.error());
    std::optional<bool> stepped = *first;
    while (!stepped || !*stepped) {
      if (stepped) {
        // The outcome of a pass can be later at an owner than at who began it.
        const auto settled =
            co_await p.template call<detail::settled_function<Optimizer>>(options..., as_expected);
        if (!settled) co_return tl::unexpected(asked_before(settled.error()));
      }
      const auto in_turn = co_await p.template call<detail::step_in_turn_function<Optimizer>>(
          options..., as_expected);
      if (!in_turn) co_return tl::unexpected(asked_before(in_turn.error()));
      stepped = *in_turn;
    }
    co_return expected<void>();
  }
  /// The owner had the step already, and did nothing yet.
  static error asked_before(const error& e) {
    if (e.ran() != call_progress::not_sent) return e;
    return e.with([](error_detail& d) { d.ran = call_progress::not_executed; });
  }

  std::vector<part> parts_;  // by the owner's rank
};

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
