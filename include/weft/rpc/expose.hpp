// SPDX-License-Identifier: BSL-1.0
// Functions that only other programs call.
#pragma once

#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/detail/looking.hpp>
#include <weft/rpc/detail/object_parameters.hpp>

namespace weft {

/// Makes F callable from other programs. Needed only if this program never calls F itself. It takes
/// effect wherever it is compiled in; it does nothing when it runs. Any thread, at any time.
///
///   weft::expose<&scale>();  // anywhere in the program that has `scale`
template <auto F>
inline void expose() noexcept {
  if constexpr (detail::object_parameters<F>::looks) {
    static_cast<void>(&detail::registered<detail::looking<F>>);
  }
  if constexpr (!detail::object_parameters<F>::looks ||
                detail::all_encodable<typename function<F>::arguments>) {
    static_cast<void>(&detail::registered<detail::exposed<F>>);
  }
}

}  // namespace weft
