// SPDX-License-Identifier: BSL-1.0
// Arguments that may come as references to values.
#pragma once

namespace weft::detail {

/// Whether a Given may be passed for a value of type T, though it is none. Higher floors say of
/// what: weft/rref/detail/resolving.hpp.
template <class Given, class T>
inline constexpr bool stands_for = false;

}  // namespace weft::detail
