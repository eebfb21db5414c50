// SPDX-License-Identifier: BSL-1.0
// Where the face enters the engine. In a program whose engine is compiled elsewhere
// (WEFT_SEPARATE_COMPILATION) this is all that run.hpp includes of it.
#pragma once

#include <weft/config.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/options.hpp>
#include <weft/transport/any_transport.hpp>

#include <asio/awaitable.hpp>

#include <functional>
#include <string>
#include <vector>

namespace weft {

using worker_main = std::function<asio::awaitable<void>(worker&)>;

namespace engine {
// Entries carry the version in their symbols: weft::compiled of another one does not link.
inline namespace WEFT_VERSION_NAME {

/// Fresh ones for a worker that is reached at these addresses; none: from this host only.
using make_transports = transport_list(const std::vector<std::string>& addresses);

/// See weft::run.
[[nodiscard]] WEFT_DECL int run(make_transports* transports, worker_main main_, options o);
/// The same, with workers that are threads of this process.
[[nodiscard]] WEFT_DECL int run_threads(worker_main main_, options o);

}  // namespace WEFT_VERSION_NAME
}  // namespace engine
}  // namespace weft
