// SPDX-License-Identifier: BSL-1.0
// Tensors for who knows nothing of libtorch: those of a message that goes on as it came, and what
// is said where nobody knows any.
#pragma once

#include <weft/config.hpp>
#include <weft/core/error.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/reader.hpp>
#include <weft/wire/writer.hpp>

#include <cstdint>

namespace weft::detail {

/// Puts the tensors of a message that arrived into one that goes on, under the same indices. Set
/// before main, where tensors are known. Throws rpc_error for bytes that are none.
WEFT_PROCESS_WIDE inline constinit void (*pass_tensors_on)(incoming_message& from,
                                                           message& to) = nullptr;

/// The tensors of that message arrive detached. Before the first is decoded. Set as that.
WEFT_PROCESS_WIDE inline constinit void (*detach_received)(reader& of) = nullptr;
/// How many bytes the tensors have that were encoded. Set as that.
WEFT_PROCESS_WIDE inline constinit std::uint64_t (*encoded_tensor_bytes)(writer& into) = nullptr;

[[noreturn]] inline void no_tensors_known() {
  throw rpc_error(errc::not_encodable,
                  "a tensor, but no file of this program includes weft/run.hpp (a shared library "
                  "needs a program that is linked with -rdynamic, in CMake ENABLE_EXPORTS)");
}

}  // namespace weft::detail
