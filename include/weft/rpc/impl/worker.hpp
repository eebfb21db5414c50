// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/worker.hpp.
#pragma once

#include <weft/core/detail/what_of.hpp>
#include <weft/core/impl/say_failed.hpp>
#include <weft/rpc/worker.hpp>

#include <exception>
#include <string>
#include <utility>

namespace weft {

WEFT_DECL std::string worker::in_words(const std::exception& e) const {
  for (const auto& s : services_) {
    if (!s) continue;
    if (auto words = s->in_words(e)) return *std::move(words);
  }
  return detail::what_of(e);
}

WEFT_DECL error worker::without_service(service_id which) const {
  return {errc::invalid_argument, "worker '" + members_.self().name +
                                      "' was made without the service of " +
                                      (which == service_id::rref       ? "references"
                                       : which == service_id::autograd ? "autograd contexts"
                                                                       : "broadcasts") +
                                      "; sim::services() gives a sim::world all services"};
}

}  // namespace weft
