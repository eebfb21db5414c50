// SPDX-License-Identifier: BSL-1.0
// The result of a function that runs in place.
#pragma once

#include <utility>

namespace weft {

/// Result of a function that runs in place, on the thread that read the request: it must not block,
/// and takes no `worker&`. It is no coroutine, so it returns, also where there is nothing to say:
///
///   weft::immediate<int> version() { return 3; }
///   weft::immediate<void> note(int x) { ++seen[x]; return {}; }
template <class T>
struct immediate {
  T value;
  immediate(T v) : value(std::move(v)) {}
};
template <>
struct immediate<void> {};

}  // namespace weft
