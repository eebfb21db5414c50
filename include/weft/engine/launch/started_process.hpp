// SPDX-License-Identifier: BSL-1.0
// A child process, known by a descriptor of it (pidfd).
#pragma once

#include <weft/core/detail/descriptor.hpp>
#include <weft/engine/fwd.hpp>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weft::engine {

/// How a process ended, as waitpid says it; none if something else in this process has collected
/// it.
struct process_end {
  std::optional<int> status;
};

/// Its end is heard of whatever the program does with SIGCHLD or by waitpid, and a signal reaches
/// no process that has its number after it. One thread.
class started_process {
 public:
  /// A child that has not ended yet. Throws std::system_error.
  started_process(asio::io_context& io, ::pid_t pid) : fd_(io) {
    descriptor fd(pidfd_open(pid));
    if (!fd) throw std::system_error(errno, std::generic_category(), "weft: starting a worker");
    fd_.assign(fd.get());
    static_cast<void>(fd.release());
  }

  /// Throws std::system_error where the kernel or a sandbox lacks what this class needs.
  static void need() {
    const descriptor self(pidfd_open(::getpid()));
    ::siginfo_t none{};
    if (self && ::waitid(by_pidfd, static_cast<::id_t>(self.get()), &none, WEXITED) != 0 &&
        errno == ECHILD) {
      return;
    }
    throw std::system_error(errno, std::generic_category(),
                            "launching workers needs pidfd_open and waitid(P_PIDFD), which "
                            "Linux 5.4 has and this kernel or sandbox refuses; start the workers "
                            "by torchrun or mpirun instead");
  }

  /// Calls `then(error_code)` on the io_context when it has ended.
  template <class Then>
  void async_wait(Then&& then) {
    fd_.async_wait(asio::posix::stream_descriptor::wait_read, std::forward<Then>(then));
  }
  /// Whether it has ended; collects it.
  [[nodiscard]] std::optional<process_end> ended() const { return collected(WNOHANG); }
  /// Blocks until then.
  void wait() const { static_cast<void>(collected(0)); }
  /// Nothing where it has ended.
  void send(int signal) const noexcept {
    ::syscall(SYS_pidfd_send_signal, handle(), signal, nullptr, 0);
  }

 private:
  static constexpr auto by_pidfd = static_cast<::idtype_t>(3);  // P_PIDFD, in glibc since 2.36

  static int pidfd_open(::pid_t pid) noexcept {
    return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  }
  [[nodiscard]] int handle() const noexcept { return fd_.native_handle(); }
  [[nodiscard]] std::optional<process_end> collected(int how) const {
    ::siginfo_t end{};
    if (::waitid(by_pidfd, static_cast<::id_t>(handle()), &end, WEXITED | how) != 0) {
      return errno == ECHILD ? std::optional(process_end{}) : std::nullopt;
    }
    if (end.si_pid == 0) return std::nullopt;
    return process_end{end.si_code == CLD_EXITED ? end.si_status << 8 : end.si_status};
  }

  // Only to be asked for its number, which Asio gives to none that is const.
  mutable asio::posix::stream_descriptor fd_;
};

}  // namespace weft::engine
