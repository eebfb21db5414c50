// SPDX-License-Identifier: BSL-1.0
// The helper's tick: the kernel's timer, which any thread sets without waking another one, and
// which one io_context waits for.
#pragma once

#include <weft/engine/fwd.hpp>
#include <weft/engine/helper/helper.hpp>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <system_error>
#include <utility>

#include <sys/timerfd.h>
#include <unistd.h>

namespace weft::engine {

class timer_alarm final : public tick_alarm {
 public:
  /// `ring` runs on that io_context. Throws std::system_error without a descriptor.
  timer_alarm(asio::io_context& io, std::function<void()> ring)
      : timer_(io, made()), ring_(std::move(ring)) {
    wait();
  }
  void arm(std::chrono::microseconds after) noexcept override {
    itimerspec when{};
    when.it_value.tv_nsec = static_cast<long>(std::chrono::nanoseconds(after).count());
    ::timerfd_settime(timer_.native_handle(), 0, &when, nullptr);
  }

 private:
  static int made() {
    const int fd = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "weft: a timer");
    return fd;
  }
  void wait() {
    timer_.async_wait(asio::posix::stream_descriptor::wait_read, [this](std::error_code ec) {
      if (ec) return;
      std::uint64_t rang = 0;
      const bool real = ::read(timer_.native_handle(), &rang, sizeof rang) > 0;
      wait();
      if (real) ring_();
    });
  }

  asio::posix::stream_descriptor timer_;
  std::function<void()> ring_;
};

}  // namespace weft::engine
