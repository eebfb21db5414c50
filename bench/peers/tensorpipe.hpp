// SPDX-License-Identifier: BSL-1.0
// Peer "tensorpipe": PyTorch's own C++ TensorPipeAgent over TCP (transport uv, channel basic) with
// an echo callback; no Python, no operator dispatch, no pickled arguments.
#pragma once

#include "../process.hpp"

#include <cstddef>

namespace bench::tensorpipe {

/// Round trips of a message with 64 bytes of payload, one after the other: p50, p99 in
/// microseconds.
figures echo_small(placement where);

/// The same with `in_flight` of them under way: rate per second, cpu in microseconds per call.
figures echo_many(std::size_t in_flight, placement where);

/// A tensor of `bytes` there and back: p50, p99 in microseconds.
figures echo_tensor(std::size_t bytes, placement where);

}  // namespace bench::tensorpipe
