// SPDX-License-Identifier: BSL-1.0
// Names that contexts, passes and their messages share.
#pragma once

#include <cstdint>

namespace weft::autograd {

using worker_rank = std::uint32_t;
using context_id = std::uint64_t;
/// Names one recorded forward message; unique among the messages that one worker sent in a context.
using message_id = std::uint64_t;

/// Whether nodes keep what they saved for backward, so that another pass can run over them.
enum class graph_retention : std::uint8_t { release, retain };

}  // namespace weft::autograd
