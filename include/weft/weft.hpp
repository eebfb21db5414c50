// SPDX-License-Identifier: BSL-1.0
// weft: remote calls, references, gradients and tensors across processes, as coroutines.
//
// The face: include it in files with calls, references and gradients. The one file that has main
// includes weft/run.hpp, which is this and the engine. The distributed optimizer needs more of
// libtorch's headers, and has its own header (weft/optim/distributed.hpp). So have the transports
// (weft/transport/tcp.hpp, ...), for authors of a transport.
#ifndef WEFT_WEFT_HPP
#define WEFT_WEFT_HPP

#include <weft/core/detail/macros_off.hpp>

#include <weft/autograd/backward.hpp>
#include <weft/autograd/context.hpp>
#include <weft/autograd/grad_mode.hpp>
#include <weft/call.hpp>
#include <weft/config.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/channel.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>
#include <weft/core/gather.hpp>
#include <weft/core/log.hpp>
#include <weft/core/on_pool.hpp>
#include <weft/core/sleep_for.hpp>
#include <weft/core/task_group.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/caller.hpp>
#include <weft/rpc/expose.hpp>
#include <weft/rpc/immediate.hpp>
#include <weft/rpc/into.hpp>
#include <weft/rpc/options.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rpc/retry.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/rref/callback.hpp>
#include <weft/rref/exclusive.hpp>
#include <weft/rref/group_calls.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/published.hpp>
#include <weft/rref/rref.hpp>
#include <weft/rref/sharded.hpp>
#include <weft/rref/stream.hpp>
#include <weft/version.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/path.hpp>
#include <weft/wire/tensor.hpp>
#include <weft/wire/tensor_copies.hpp>

#include <weft/core/detail/macros_on.hpp>

#endif

// Each file that includes this notes its own name, even if the rest is in a precompiled header.
namespace weft::detail {
[[maybe_unused]] static const bool WEFT_JOIN(named_, __COUNTER__) = (this_file = __BASE_FILE__);
}
