// SPDX-License-Identifier: BSL-1.0
// What stands behind a weft::owned_worker.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/fwd.hpp>

#include <asio/awaitable.hpp>

#include <string>

namespace weft::detail {

/// What the engine knows of it (engine/join.hpp).
class owned_life {
 public:
  virtual ~owned_life() = default;
  [[nodiscard]] virtual weft::worker& worker() = 0;
  virtual error run() = 0;
  virtual bool run_for(duration most) = 0;
  virtual void leave() = 0;
  virtual void fail(std::string why) = 0;
  [[nodiscard]] virtual asio::awaitable<error> ended() = 0;
  /// Its owner has gone.
  virtual void abandon() noexcept = 0;
};

}  // namespace weft::detail
