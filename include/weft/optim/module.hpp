// SPDX-License-Identifier: BSL-1.0
// Modules of other workers: their parameters, for an optimizer, and their state, for a checkpoint.
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <weft/optim/detail/module.hpp>
#include <weft/optim/detail/module_slips.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/wire/tensor.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace weft::optim {

/// References to the parameters of a module, for `distributed::create`. They stay at the module's
/// owner. Errors are those of a call through the reference.
///
///   auto there = p.make<net>(64);
///   auto sgd = co_await distributed<SGD>::create(me, co_await parameters(there), SGDOptions(0.1));
template <class Module, class... Options>
[[nodiscard]] auto parameters(const rref<Module>& of, Options... options)
    -> asio::awaitable<std::vector<rref<at::Tensor>>> {
  return of.template call<&detail::parameters_of<Module>>(options...);
}

/// Copies of a module's parameters and buffers. Its owner copies them on its compute pool, side by
/// side with functions of the module that may write them.
template <class Module, class... Options>
[[nodiscard]] auto state_dict(const rref<Module>& of, Options... options)
    -> asio::awaitable<module_state> {
  return of.template call<&detail::state_of<Module>>(options...);
}

/// Writes a state into the module, in place, in the module's dtypes and on its devices. If the
/// state does not fit, it fails with remote_exception and writes nothing. The error lists all names
/// that are missing, that the module does not have, or that have another shape or kind. No step of
/// an optimizer may run meanwhile.
template <class Module, class... Options>
[[nodiscard]] auto load_state_dict(const rref<Module>& into, module_state state, Options... options)
    -> asio::awaitable<void> {
  return into.template call<&detail::load_state<Module>>(std::move(state), options...);
}

}  // namespace weft::optim

#include <weft/core/detail/macros_on.hpp>
