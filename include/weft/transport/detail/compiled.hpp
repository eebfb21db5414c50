// SPDX-License-Identifier: BSL-1.0
// weft's own transports in a program whose engine is compiled elsewhere: their names.
#pragma once

#include <weft/transport/any_transport.hpp>
#include <weft/transport/fwd.hpp>

#include <string>
#include <vector>

namespace weft {

namespace detail {
template <>
inline constexpr bool is_compiled_in<inproc> = true;
template <>
inline constexpr bool is_compiled_in<tcp> = true;
template <>
inline constexpr bool is_compiled_in<unix_socket> = true;
}  // namespace detail

// Defined by weft/src.hpp.
template <>
transport_list make_transports_at<inproc>(const std::vector<std::string>& addresses);
template <>
transport_list make_transports_at<tcp>(const std::vector<std::string>& addresses);
template <>
transport_list make_transports_at<unix_socket>(const std::vector<std::string>& addresses);

}  // namespace weft
