// SPDX-License-Identifier: BSL-1.0
// What becomes of signals and of the standard streams while a process watches over workers.
#pragma once

#include <weft/core/log.hpp>
#include <weft/engine/fwd.hpp>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace weft::engine {

/// While it lives SIGINT and SIGTERM are for whoever waits here, also where the thread had blocked
/// them, and SIGCHLD does what it does by default, so that children are collected by those only who
/// wait for them. Afterwards the program's own handlers and the thread's mask are back; a handler
/// that was set meanwhile stays. One thread.
class launch_signals {
 public:
  explicit launch_signals(asio::io_context& io) : set_(io) {
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      ::sigaction(numbers[n], nullptr, &before_[n]);
    }
    by_default(SIGCHLD);
    set_.add(SIGINT);
    set_.add(SIGTERM);
    ::sigemptyset(&interrupts_);
    ::sigaddset(&interrupts_, SIGINT);
    ::sigaddset(&interrupts_, SIGTERM);
    ::pthread_sigmask(SIG_UNBLOCK, &interrupts_, &mask_);
  }
  launch_signals(const launch_signals&) = delete;
  launch_signals& operator=(const launch_signals&) = delete;
  ~launch_signals() {
    ::pthread_sigmask(SIG_BLOCK, &interrupts_, nullptr);  // for the moment in which nobody hears
    asio::error_code ignored;
    set_.clear(ignored);
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      struct ::sigaction now{};
      ::sigaction(numbers[n], nullptr, &now);
      if (now.sa_handler == SIG_DFL) ::sigaction(numbers[n], &before_[n], nullptr);
    }
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

  /// Calls `then(error_code, signal)` for SIGINT or SIGTERM.
  template <class Then>
  void async_wait(Then&& then) {
    set_.async_wait(std::forward<Then>(then));
  }
  void cancel() {
    asio::error_code ignored;
    set_.cancel(ignored);
  }

  /// In a child that was forked with all signals blocked: those of the supervisor are no longer
  /// caught or ignored, and none is blocked.
  static void undo() noexcept {
    for (const int signal : numbers) by_default(signal);
    ::sigset_t none;
    ::sigemptyset(&none);
    ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  }

 private:
  static constexpr std::array<int, 3> numbers = {SIGINT, SIGTERM, SIGCHLD};

  static void by_default(int signal) noexcept {
    struct ::sigaction none{};
    none.sa_handler = SIG_DFL;
    ::sigaction(signal, &none, nullptr);
  }
  asio::signal_set set_;
  std::array<struct ::sigaction, 3> before_{};
  ::sigset_t interrupts_{};
  ::sigset_t mask_{};
};

/// While it lives, a write to who has gone is an error and not the end of this process; and the
/// standard descriptors exist, so that nothing else takes their numbers.
class steady_streams {
 public:
  steady_streams() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
      const int got = ::open("/dev/null", O_RDWR);  // the lowest free number, so this one
      if (got == STDOUT_FILENO) {
        say("", "standard output is closed; what the workers print is lost");
      }
    }
    struct ::sigaction ignore{};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &before_);
  }
  steady_streams(const steady_streams&) = delete;
  steady_streams& operator=(const steady_streams&) = delete;
  ~steady_streams() { ::sigaction(SIGPIPE, &before_, nullptr); }
  /// In a child, after fork.
  void undo() const noexcept { ::sigaction(SIGPIPE, &before_, nullptr); }

 private:
  struct ::sigaction before_{};
};

/// Forks with every signal blocked, in the child too. In this process the mask is as before.
[[nodiscard]] inline ::pid_t fork_blocked() noexcept {
  ::sigset_t all;
  ::sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const ::pid_t pid = ::fork();
  if (pid != 0) ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pid;
}

}  // namespace weft::engine
