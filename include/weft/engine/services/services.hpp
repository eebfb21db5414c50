// SPDX-License-Identifier: BSL-1.0
// Room services: what rides on the links beside calls, that is, references (rref_service.hpp) and
// gradients (autograd_service.hpp). Links and the worker know them as `service` (rpc/service.hpp)
// only. Includes up to autograd/, and all rooms.
//
// This file: which class implements which service.
#pragma once

#include <weft/engine/fwd.hpp>
#include <weft/engine/worker/runtime.hpp>
#include <weft/rpc/service.hpp>

#include <memory>

namespace weft {

class rref_service;
class autograd_service;

namespace engine {

class rref_service;
class autograd_service;

/// The class that implements the service S: itself, unless S is an interface.
template <class S>
struct implementation_of {
  using type = S;
};
template <>
struct implementation_of<weft::rref_service> {
  using type = rref_service;
};
template <>
struct implementation_of<weft::autograd_service> {
  using type = autograd_service;
};

/// The makers of these services.
template <class... S>
[[nodiscard]] service_makers services() {
  return {service_maker{S::place, [](engine::worker& me) -> std::unique_ptr<service> {
                          return std::make_unique<typename implementation_of<S>::type>(me);
                        }}...};
}

}  // namespace engine
}  // namespace weft
