// SPDX-License-Identifier: BSL-1.0
// The result of a function that runs in place.
#pragma once

#include <utility>

namespace weft {

/// Result of a function that runs in place, on the thread that read the request. That function must
/// not block, and takes no `worker&`. It is no coroutine: it must return, also where T is void:
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
