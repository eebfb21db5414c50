// SPDX-License-Identifier: BSL-1.0
// Calls, for files without references and gradients. weft/weft.hpp contains it, and takes longer to
// compile. A tensor as argument or result needs weft/wire/tensor.hpp, too, and `weft::retry` needs
// weft/rpc/retry.hpp.
#ifndef WEFT_CALL_HPP
#define WEFT_CALL_HPP

#include <weft/core/detail/macros_off.hpp>

#include <weft/config.hpp>
#include <weft/core/error.hpp>
#include <weft/core/future.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/caller.hpp>
#include <weft/rpc/immediate.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/version.hpp>
#include <weft/wire/codec.hpp>

#include <weft/core/detail/macros_on.hpp>

#define WEFT_JOIN(a, b) WEFT_JOIN_EXPANDED(a, b)
#define WEFT_JOIN_EXPANDED(a, b) a##b

#endif

// Each file that includes this says its name, also where the rest stands in a precompiled header.
namespace weft::detail {
[[maybe_unused]] static const bool WEFT_JOIN(named_, __COUNTER__) = (this_file = __BASE_FILE__);
}
