// SPDX-License-Identifier: BSL-1.0
// Types that contexts, passes and their messages share.
#pragma once

#include <cstdint>

namespace weft::autograd {

using worker_rank = std::uint32_t;
using context_id = std::uint64_t;
/// Identifies one recorded forward message among those that one worker sent in a context.
using message_id = std::uint64_t;

/// Whether nodes keep the tensors that they saved for backward, so that another pass can use them.
enum class graph_retention : std::uint8_t { release, retain };

}  // namespace weft::autograd
