// SPDX-License-Identifier: BSL-1.0
// The alarm behind a turn of a worker's loop: the kernel's timer, which any thread sets without
// waking another one, and which one io_context waits for.
#pragma once

#include <weft/engine/cork/late_flush.hpp>
#include <weft/engine/fwd.hpp>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <system_error>
#include <utility>

#include <sched.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace weft::engine {

class timer_alarm final : public flush_alarm {
 public:
  /// What else the thread of the io_context is for: where that cannot wait, it never gives way.
  enum class thread_is : std::uint8_t { a_guard, for_links };

  /// `ring` runs on that io_context. Throws std::system_error without a descriptor.
  timer_alarm(asio::io_context& io, thread_is what, std::function<void()> ring)
      : timer_(io, made()), may_give_way_(what == thread_is::a_guard), ring_(std::move(ring)) {
    wait();
  }
  void arm(std::chrono::microseconds after) noexcept override {
    itimerspec when{};
    when.it_value.tv_nsec = static_cast<long>(std::chrono::nanoseconds(after).count());
    ::timerfd_settime(timer_.native_handle(), 0, &when, nullptr);
  }
  /// By the scheduler's policy for batches, unless the program has chosen one (only that same
  /// policy, chosen meanwhile, is taken for ours). The C library's functions for threads would not
  /// see what others chose.
  void give_way(bool on) noexcept override {
    if (!may_give_way_ || gives_way_ == on) return;
    const sched_param settings{};
    const bool ours = ::sched_getscheduler(0) == (on ? SCHED_OTHER : SCHED_BATCH);
    const bool done =
        ours && ::sched_setscheduler(0, on ? SCHED_BATCH : SCHED_OTHER, &settings) == 0;
    gives_way_ = on && done;
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
      if (real) ring_();
      wait();
    });
  }

  asio::posix::stream_descriptor timer_;
  const bool may_give_way_;
  bool gives_way_ = false;  // the alarm's thread
  std::function<void()> ring_;
};

}  // namespace weft::engine
