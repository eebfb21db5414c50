// SPDX-License-Identifier: BSL-1.0
// Tensors of a message that goes on as it came, for who knows nothing of libtorch.
#pragma once

#include <weft/wire/message.hpp>

namespace weft::detail {

/// Puts the tensors of a message that arrived into one that goes on, under the same indices. Set
/// before main, where tensors are known. Throws rpc_error for bytes that are none.
inline constinit void (*pass_tensors_on)(incoming_message& from, message& to) = nullptr;

}  // namespace weft::detail
