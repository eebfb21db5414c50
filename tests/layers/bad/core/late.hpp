// SPDX-License-Identifier: BSL-1.0
// Templates that are none.
#pragma once

#include <weft/run.hpp>
template <class = void>
int late();
template <class T
          = void>
struct later {};
template <class>
[[nodiscard]] inline int
latest(int x) { return x; }
template <class>
class fine;
template <class>
inline constexpr bool is_fine = sizeof(int) == sizeof(long);
template <class T = int>
struct also_fine {};
struct live_thing { int alive_; int live_; };
void use_tensors();
