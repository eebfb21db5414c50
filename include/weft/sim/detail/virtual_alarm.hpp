// SPDX-License-Identifier: BSL-1.0
// The helper's tick, in virtual time.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/helper/helper.hpp>
#include <weft/sim/timeline.hpp>

#include <asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <utility>

namespace weft::sim::detail {

/// Rings on `front`. Its io_context drops its work before this dies.
class virtual_alarm final : public engine::tick_alarm, private moment {
 public:
  virtual_alarm(timeline& time, asio::io_context& front, std::function<void()> ring)
      : moment(time), time_(time), front_(front), ring_(std::move(ring)) {}
  void arm(std::chrono::microseconds after) noexcept override {
    time_.add(*this, time_.now() + after);
  }

 private:
  void comes() override {
    weft::detail::post_or_die(front_, [this] { ring_(); });
  }
  timeline& time_;
  asio::io_context& front_;
  std::function<void()> ring_;
};

}  // namespace weft::sim::detail
