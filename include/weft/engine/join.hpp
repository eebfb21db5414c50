// SPDX-License-Identifier: BSL-1.0
// Where the face enters the engine for a worker that its program owns; see weft::join (run.hpp).
#pragma once

#include <weft/config.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/run.hpp>
#include <weft/rpc/options.hpp>
#include <weft/rpc/owned_worker.hpp>

#include <asio/awaitable.hpp>

namespace weft::engine {
inline namespace WEFT_VERSION_NAME {

/// `loop`: where the worker lives; null: on one of its own.
[[nodiscard]] WEFT_DECL asio::awaitable<owned_worker> join(make_transports* transports,
                                                           asio::io_context* loop, options o);
[[nodiscard]] WEFT_DECL owned_worker join_blocking(make_transports* transports,
                                                   asio::io_context* loop, options o);

}  // namespace WEFT_VERSION_NAME
}  // namespace weft::engine
