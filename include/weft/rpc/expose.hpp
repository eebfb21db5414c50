// SPDX-License-Identifier: BSL-1.0
// Functions that are called by others only.
#pragma once

#include <weft/rpc/detail/invocation.hpp>

namespace weft {

/// Makes F callable from other programs' code, effective wherever it is compiled in: which is
/// needed only of what this program never calls itself. Any thread, at any time; does nothing when
/// it runs.
///
///   weft::expose<&scale>();  // anywhere in the program that has `scale`
template <auto F>
inline void expose() noexcept {
  static_cast<void>(&detail::registered<detail::exposed<F>>);
}

}  // namespace weft
