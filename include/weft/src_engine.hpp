// SPDX-License-Identifier: BSL-1.0
// A part of weft/src.hpp: what the program that calls weft::run needs.
#pragma once

#if !defined(WEFT_SEPARATE_COMPILATION)
#error                                                                                             \
    "weft: src_engine.hpp is for programs with WEFT_SEPARATE_COMPILATION, defined for every file."
#endif

#include <weft/core/detail/macros_off.hpp>

#include <weft/engine/impl/join.hpp>
#include <weft/run.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <string>
#include <vector>

namespace weft {

template <>
transport_list make_transports_at<inproc>(const std::vector<std::string>& addresses) {
  return detail::transports_at<inproc>(addresses);
}
template <>
transport_list make_transports_at<tcp>(const std::vector<std::string>& addresses) {
  return detail::transports_at<tcp>(addresses);
}
template <>
transport_list make_transports_at<unix_socket>(const std::vector<std::string>& addresses) {
  return detail::transports_at<unix_socket>(addresses);
}

}  // namespace weft

#include <weft/core/detail/macros_on.hpp>
