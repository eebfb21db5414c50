// SPDX-License-Identifier: BSL-1.0
// The machine's monotonic clock, with Asio's timers.
#pragma once

#include <weft/core/time.hpp>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace weft {

/// The machine's monotonic clock. It is a template over the io_context only to compile nothing of
/// it where it is not used.
template <std::same_as<asio::io_context> Context>
class basic_real_clock final : public clock {
 public:
  [[nodiscard]] time_point now() const noexcept override {
    return std::chrono::steady_clock::now();
  }
  [[nodiscard]] std::unique_ptr<timer> make_timer(Context& context) override {
    return std::make_unique<asio_timer>(context);
  }

 private:
  // If a wait was queued before it was cancelled, Asio still calls it back with success. So this
  // class numbers the alarms, and keeps the number of the present one.
  class asio_timer final : public timer {
   public:
    explicit asio_timer(Context& context) : timer_(context) {}
    ~asio_timer() override { ++*present_; }
    void arm(time_point when, std::function<void()> alarm) override {
      const std::uint64_t mine = ++*present_;
      timer_.expires_at(when);
      timer_.async_wait([present = present_, mine, rings = std::move(alarm)](asio::error_code ec) {
        if (ec || *present != mine) return;
        ++*present;
        rings();
      });
    }
    void cancel() override {
      ++*present_;
      timer_.cancel();
    }

   private:
    const std::shared_ptr<std::uint64_t> present_ = std::make_shared<std::uint64_t>(0);
    asio::steady_timer timer_;
  };
};
using real_clock = basic_real_clock<asio::io_context>;

}  // namespace weft
