// SPDX-License-Identifier: BSL-1.0
// Peer "local": the model of the autograd rows in one process.
#pragma once

#include "../process.hpp"

#include <cstdint>

namespace bench::local {

/// The model: two linear layers of width x width, mean squared error, SGD.
inline constexpr std::int64_t width = 64;
inline constexpr std::int64_t batch = 32;
inline constexpr double rate = 0.01;

/// Forward, backward and step with libtorch's own autograd and optimizer, one thread: p50, p99 in
/// microseconds.
figures step();
/// The same, but only backward is timed.
figures backward();

}  // namespace bench::local
