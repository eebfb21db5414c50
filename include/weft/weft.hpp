// SPDX-License-Identifier: BSL-1.0
// weft: remote calls, references, gradients and tensors across processes, as coroutines.
//
// Everything but the distributed optimizer (weft/optim/distributed.hpp), which needs more of
// libtorch's headers.
#pragma once

#include <weft/autograd/context.hpp>
#include <weft/autograd/grad_mode.hpp>
#include <weft/config.hpp>
#include <weft/core/error.hpp>
#include <weft/core/future.hpp>
#include <weft/core/scope.hpp>
#include <weft/core/task_group.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/launch.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/rref/peer.hpp>
#include <weft/run.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>
#include <weft/version.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/tensor.hpp>
