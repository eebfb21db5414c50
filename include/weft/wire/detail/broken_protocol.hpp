// SPDX-License-Identifier: BSL-1.0
// What no correct peer sends.
#pragma once

#include <weft/core/error.hpp>

#include <string_view>

namespace weft::detail {

/// The link that it came over ends with this; what was sent over it may have run.
[[nodiscard]] inline tl::unexpected<error> broken_protocol(std::string_view text) {
  return tl::unexpected(
      error(errc::protocol_error, text, call_progress::maybe_executed, origin::transport));
}

}  // namespace weft::detail
