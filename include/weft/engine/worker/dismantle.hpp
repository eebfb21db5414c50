// SPDX-License-Identifier: BSL-1.0
// The order in which the parts of a worker go.
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/engine/link/transport_set.hpp>
#include <weft/engine/worker/worker.hpp>

#include <asio/io_context.hpp>

#include <memory>
#include <vector>

namespace weft::engine {

/// An io_context whose pending work can be dropped while what that work refers to still lives.
class droppable_context : public asio::io_context {
 public:
  using asio::io_context::io_context;
  void drop_work() { shutdown(); }
};

/// Of a worker whose threads have ended, but for this one. `loop` is null if it is the user's,
/// which has dropped its work; `me` is null if the worker has not joined. The contexts remain.
///
/// Other threads post to the contexts until the pool has stopped and the worker is detached.
/// Coroutines that still wait refer to the worker, whose timers refer to the contexts, as do the
/// transports' listeners: drop the work then, after that those, then the contexts.
template <class Pool, class Alarm>
void dismantle(std::unique_ptr<worker>& me, Pool& pool, droppable_context* loop,
               const std::vector<std::unique_ptr<droppable_context>>& io,
               std::unique_ptr<Alarm>& alarm, std::unique_ptr<weft::arrivals>& arrivals,
               transport_set& transports) noexcept {
  const scope_guard of_nobody(nullptr);  // though another worker's handler may do this
  if (me) {
    me->detach();
    me->drop_calls();
  }
  pool.drop_work();  // requests, which refer to links
  if (loop) loop->drop_work();
  for (const auto& c : io) c->drop_work();
  me.reset();
  alarm.reset();
  arrivals.reset();
  transports = transport_set();
}

}  // namespace weft::engine
