// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/sim/host.hpp.
#pragma once

#include <weft/core/detail/what_of.hpp>
#include <weft/sim/host.hpp>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <exception>
#include <utility>

namespace weft::sim {

inline host::host(timeline& time, host_id id, options settings, std::int32_t clock_ppm)
    : id_(id), settings_(std::move(settings)), clock_(time, clock_ppm), loop_(1), pool_(1) {
  // By default one reads for the worker's.
  for (unsigned i = 0; i < settings_.io_threads.value_or(1); ++i) {
    io_.push_back(std::make_unique<engine::droppable_context>(1));
  }
  keep(loop_);
  keep(pool_);
  for (const auto& c : io_) keep(*c);
}

inline void host::keep(engine::droppable_context& c) {
  contexts_.push_back(&c);
  guards_.emplace_back(c.get_executor());
  busy_.emplace_back();
}

inline std::vector<member::address> host::listen(engine::transport_set transports) {
  transports_ = std::move(transports);
  return transports_.listen(front());
}

inline void host::start(membership all, random_source random,
                        const engine::service_makers& services,
                        std::function<asio::awaitable<void>(weft::worker&)> main_) {
  std::vector<asio::io_context*> io;
  if (settings_.io_threads) {
    for (const auto& c : io_) io.push_back(c.get());
  } else {
    arrivals_ = std::make_unique<arrivals>(front(), arrival_ends::of::no_sockets,
                                           [this] { me_->helper().arrived(); });
  }
  alarm_ = std::make_unique<detail::virtual_alarm>(clock_.source(), front(),
                                                   [this] { me_->helper().ticked(); });
  me_ = std::make_unique<engine::worker>(
      engine::worker_parts{loop_, clock_, std::move(random), transports_, std::move(io), &front(),
                           alarm_.get(), arrivals_.get(), pool_.get_executor(), false},
      std::move(all), settings_);
  me_->loop_is_run_by().bind(me_->name());  // so that weft::wait says at once that it cannot
  for (const engine::service_maker& s : services) me_->add_service(s.slot, s.make(*me_));
  auto body = [](host& self,
                 std::function<asio::awaitable<void>(weft::worker&)> f) -> asio::awaitable<void> {
    try {
      self.ended_ = co_await self.me_->run(std::move(f));
    } catch (const std::exception& e) {
      self.ended_ = error(errc::worker_failed, weft::detail::what_of(e));
    }
  };
  asio::co_spawn(loop_, body(*this, std::move(main_)), asio::detached);
}

inline bool host::step(std::uint32_t i) {
  try {
    return contexts_[i]->poll_one() > 0;
  } catch (...) {
    me_->handler_threw(std::current_exception());
    return true;
  }
}

inline void host::kill() noexcept {
  if (guards_.empty()) return;
  guards_.clear();
  engine::dismantle(me_, pool_, &loop_, io_, alarm_, arrivals_, transports_);
}

}  // namespace weft::sim
