// SPDX-License-Identifier: BSL-1.0
// What a libtorch optimizer keeps for its parameters, as tensors by name. Not by libtorch's own
// archives: whoever reads one runs what its sender wrote into it.
#pragma once

#include <weft/optim/options.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::optim {

/// Of one parameter: copies, such as "exp_avg"; a number of steps is a tensor of one std::int64_t.
/// Empty before its first step.
using parameter_state = std::map<std::string, at::Tensor>;

namespace detail {

template <class Optimizer>
inline constexpr bool state_is_known = requires { typename optimizer_traits<Optimizer>::state; };

template <class Optimizer>
consteval bool check_state() {
  static_assert(
      state_is_known<Optimizer>,
      "weft: weft does not know what this optimizer keeps for a parameter; add `state` and "
      "`parts` to its weft::optim::optimizer_traits.");
  return true;
}

template <class Optimizer>
std::vector<parameter_state> read_state(Optimizer& from, const std::vector<at::Tensor>& aliases) {
  using traits = optimizer_traits<Optimizer>;
  std::vector<parameter_state> out;
  out.reserve(aliases.size());
  for (const at::Tensor& alias : aliases) {
    parameter_state& mine = out.emplace_back();
    const auto found = from.state().find(alias.unsafeGetTensorImpl());
    if (found == from.state().end() || !found->second) continue;
    traits::parts(static_cast<const typename traits::state&>(*found->second),
                  [&mine]<class Part>(const char* name, const Part& part) {
                    if constexpr (std::is_same_v<Part, std::int64_t>) {
                      mine.emplace(name, at::scalar_tensor(part, at::kLong));
                    } else if (part.defined()) {
                      mine.emplace(name, part.clone());
                    }
                  });
  }
  return out;
}

[[noreturn]] inline void refuse_state(std::size_t parameter, const std::string& why) {
  throw std::invalid_argument("the state of parameter " + std::to_string(parameter) + " " + why);
}

/// What an optimizer keeps for such a parameter, with these options: made, and after one step with
/// a gradient of that layout.
struct kept_parts {
  parameter_state before, after;
};
template <class Optimizer, class Options>
kept_parts parts_kept(const at::Tensor& like, const Options& options,
                      at::Layout gradient = at::kStrided) {
  std::vector<at::Tensor> one{at::zeros({1}, like.options())};
  one[0].set_requires_grad(like.requires_grad());
  Optimizer probe(one, options);
  std::vector<at::Tensor>& aliases = probe.param_groups().front().params();
  kept_parts out;
  out.before = read_state(probe, aliases)[0];
  aliases[0].mutable_grad() = at::zeros({1}, like.options().layout(gradient));
  const at::AutoGradMode off(false);
  probe.step();
  out.after = read_state(probe, aliases)[0];
  return out;
}

/// The names of those parts that are sparse where gradients are.
template <class Optimizer, class Options>
std::set<std::string> sparse_parts(const at::Tensor& like, const Options& options) {
  std::set<std::string> out;
  try {
    for (const auto& [name, part] : parts_kept<Optimizer>(like, options, at::kSparse).after) {
      if (part.layout() == at::kSparse) out.insert(name);
    }
  } catch (const c10::Error&) {  // it takes no sparse gradients
  }
  return out;
}

/// That a state has these parts and no other.
inline void check_parts(std::size_t parameter, const parameter_state& given,
                        const parameter_state& wanted) {
  for (const auto& [name, like] : wanted) {
    const auto found = given.find(name);
    if (found == given.end() || !found->second.defined()) refuse_state(parameter, "lacks " + name);
  }
  for (const auto& [name, tensor] : given) {
    if (!wanted.contains(name)) {
      refuse_state(parameter, "has a " + name + ", which this optimizer does not keep");
    }
  }
}

/// That what an optimizer has kept will do with other options, too.
template <class Optimizer, class Options>
void check_kept_state(Optimizer& of, const std::vector<at::Tensor>& aliases, std::size_t first,
                      std::size_t count, const Options& options) {
  const std::vector<parameter_state> kept = read_state(of, aliases);
  for (std::size_t i = first; i < first + count; ++i) {
    if (kept[i].empty()) continue;
    for (const auto& [name, like] : parts_kept<Optimizer>(aliases[i], options).after) {
      if (!kept[i].contains(name)) refuse_state(i, "lacks " + name + ", which these options need");
    }
  }
}

/// What one parameter's state says, checked.
template <class Optimizer, class Options>
auto state_from(std::size_t parameter, const at::Tensor& alias, const Options& options,
                const parameter_state& given) {
  using traits = optimizer_traits<Optimizer>;
  auto out = std::make_unique<typename traits::state>();
  traits::parts(*out, [&]<class Part>(const char* name, Part& part) {
    const auto found = given.find(name);
    if (found == given.end()) return;
    const at::Tensor& t = found->second;
    if constexpr (std::is_same_v<Part, std::int64_t>) {
      const bool whole =
          t.scalar_type() == at::kLong && t.layout() == at::kStrided && t.numel() == 1;
      part = whole ? t.template item<std::int64_t>() : -1;
      if (part < 0 || part > (std::int64_t{1} << 53)) {
        refuse_state(parameter, std::string("has a ") + name + " that is no number of steps");
      }
    } else {
      const bool layout_fits =
          t.layout() == at::kStrided ||
          (t.layout() == at::kSparse && sparse_parts<Optimizer>(alias, options).contains(name));
      if (t.sizes() != alias.sizes() || !layout_fits || t.is_complex() != alias.is_complex()) {
        refuse_state(parameter, std::string("has a ") + name + " of another shape or kind");
      }
      part = t.to(alias.device(), alias.scalar_type(), false, true).detach();
    }
  });
  return out;
}

/// All or nothing. Throws std::invalid_argument if it is another optimizer's, or one's with other
/// options. `options_of(i)` are those of parameter `i`.
template <class Optimizer, class OptionsOf>
void write_state(Optimizer& to, const std::vector<at::Tensor>& aliases, OptionsOf&& options_of,
                 const std::vector<parameter_state>& given) {
  if (given.size() != aliases.size()) {
    throw std::invalid_argument("a state of " + std::to_string(given.size()) +
                                " parameters was given to an optimizer of " +
                                std::to_string(aliases.size()));
  }
  std::remove_cvref_t<decltype(to.state())> all;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& options = options_of(i);
    const kept_parts kept = parts_kept<Optimizer>(aliases[i], options);
    const at::AutoGradMode off(false);
    check_parts(i, given[i], given[i].empty() ? kept.before : kept.after);
    if (given[i].empty()) continue;
    all[aliases[i].unsafeGetTensorImpl()] = state_from<Optimizer>(i, aliases[i], options, given[i]);
  }
  to.state().swap(all);
}

}  // namespace detail
}  // namespace weft::optim
