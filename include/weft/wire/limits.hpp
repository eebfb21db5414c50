// SPDX-License-Identifier: BSL-1.0
// Limits of what a peer may send. They are checked before memory is allocated. Other limits:
//   requests that have not begun     engine/link/window.hpp, link_serve.hpp (handle_request)
//   tensors and arguments held       memory/detail/memory_budget.hpp, link_read.hpp (allocate)
//   answers that it does not read    engine/link/window.hpp (may_begin)
//   calls that wait for objects      engine/link/link.hpp (most_waiting_calls)
//   control, reference, cancel       engine/link/impl/link_read.hpp (admit, look_over)
//   gradients that it refuses        engine/services/impl/autograd_backward.hpp (takes_refusals)
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

/// All sizes are in bytes. Each worker has one set, constant while it runs. If a message exceeds a
/// limit, it fails with message_too_large or resource_exhausted.
///
///   weft::options o;
///   o.bounds.payload = 1u << 30;
struct limits {
  std::size_t handshake = 4 * 1024;   ///< a whole frame before the handshake ends
  std::size_t payload = 256u << 20;   ///< payload of one frame
  std::size_t table = 16u << 20;      ///< tensor lengths and sections of one frame
  std::uint16_t tensors = 16 * 1024;  ///< tensor buffers of one frame
  std::uint64_t frame_tensor_bytes = std::uint64_t{8} << 30;  ///< tensor memory of one frame
  /// Memory held for one peer: tensors that it sent, and arguments of coroutine functions that have
  /// begun.
  std::uint64_t link_tensor_bytes = std::uint64_t{16} << 30;
  /// The same for all peers together.
  std::uint64_t worker_tensor_bytes = std::uint64_t{64} << 30;
  int depth = 64;  ///< nesting of a value's type
};

inline constexpr limits default_limits{};

}  // namespace weft
