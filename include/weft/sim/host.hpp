// SPDX-License-Identifier: BSL-1.0
// One process of a simulated world: a real worker, whose threads are io_contexts that are stepped.
#pragma once

#include <weft/engine/fwd.hpp>
#include <weft/engine/link/transport_set.hpp>
#include <weft/engine/worker/dismantle.hpp>
#include <weft/engine/worker/runtime.hpp>
#include <weft/engine/worker/worker.hpp>
#include <weft/sim/detail/virtual_alarm.hpp>
#include <weft/sim/network.hpp>
#include <weft/sim/timeline.hpp>

#include <asio/awaitable.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace weft::sim {

/// One process of a world. Its io_contexts stand for the threads of engine::runtime: the worker's
/// loop, the compute pool, and the threads of links. A step runs one handler of one of them. The
/// process can be killed after any step, and dies as engine::runtime does. One thread.
class host {
 public:
  host(timeline& time, host_id id, options settings, std::int32_t clock_ppm);
  host(const host&) = delete;
  host& operator=(const host&) = delete;
  ~host() { kill(); }

  [[nodiscard]] host_id id() const noexcept { return id_; }
  [[nodiscard]] const virtual_clock& time() const noexcept { return clock_; }
  /// Requires alive().
  [[nodiscard]] engine::worker& worker() const noexcept { return *me_; }
  [[nodiscard]] bool alive() const noexcept { return me_ != nullptr; }
  /// How the run ended; nothing while it goes on.
  [[nodiscard]] const std::optional<error>& ended() const noexcept { return ended_; }
  [[nodiscard]] std::uint32_t threads() const noexcept {
    return static_cast<std::uint32_t>(contexts_.size());
  }

  /// Opens the listening ends. Returns the addresses at which others reach them.
  std::vector<member::address> listen(engine::transport_set transports);
  /// Begins to serve, and begins `main_`. `random` is the worker's own. Once, after `listen`.
  void start(membership all, random_source random, const engine::service_makers& services,
             std::function<asio::awaitable<void>(weft::worker&)> main_);
  /// Runs one handler of thread `i`, if there is one. Requires alive().
  bool step(std::uint32_t i);
  /// Thread `i` is busy with one handler until then.
  void busy(std::uint32_t i, time_point until) noexcept { busy_[i] = until; }
  [[nodiscard]] time_point busy_until(std::uint32_t i) const noexcept { return busy_[i]; }
  /// Ends the process: destroys all that it has, as engine::runtime does.
  void kill() noexcept;

 private:
  using guard = asio::executor_work_guard<asio::io_context::executor_type>;

  void keep(engine::droppable_context& c);
  [[nodiscard]] asio::io_context& front() noexcept { return io_.empty() ? loop_ : *io_.front(); }

  const host_id id_;
  options settings_;
  virtual_clock clock_;
  engine::transport_set transports_;
  engine::droppable_context loop_, pool_;
  std::vector<std::unique_ptr<engine::droppable_context>> io_;
  std::vector<engine::droppable_context*> contexts_;
  std::vector<guard> guards_;
  std::vector<time_point> busy_;  // until then, of contexts_
  std::unique_ptr<detail::virtual_alarm> alarm_;
  std::unique_ptr<weft::arrivals> arrivals_;
  std::unique_ptr<engine::worker> me_;
  std::optional<error> ended_;
};

}  // namespace weft::sim

#include <weft/sim/impl/host.hpp>
