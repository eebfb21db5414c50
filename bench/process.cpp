// SPDX-License-Identifier: BSL-1.0
#include "process.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iomanip>
#include <iostream>
#include <limits>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {
namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) throw_errno("sched_getaffinity");
  std::vector<int> result;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) result.push_back(core);
  }
  return result;
}

/// Forks; the child dies with this process and then runs `body`, which does not return.
pid_t fork_bound(const std::function<void()>& body) {
  std::fflush(nullptr);
  std::cout.flush();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw_errno("fork");
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  body();
  std::fflush(nullptr);
  _exit(0);
}

std::string to_text(const outcome& o) {
  std::ostringstream out;
  if (!o.error.empty()) {
    out << "error " << o.error;
  } else {
    out << std::setprecision(std::numeric_limits<double>::max_digits10);
    for (const auto& [name, value] : o.values) out << name << ' ' << value << '\n';
  }
  return out.str();
}

outcome from_text(const std::string& text) {
  if (text.starts_with("error ")) return {{}, text.substr(6)};
  outcome result;
  std::istringstream in(text);
  std::string name;
  double value = 0;
  while (in >> name >> value) result.values[name] = value;
  return result;
}

void write_all(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const auto n = write(descriptor, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) done += static_cast<std::size_t>(n);
  }
}

enum class ending { closed, timed_out };

ending read_until(int descriptor, std::chrono::steady_clock::time_point deadline,
                  std::string& text) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return ending::timed_out;
    pollfd wanted{descriptor, POLLIN, 0};
    const int ready = poll(&wanted, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR) throw_errno("poll");
    if (ready <= 0) continue;
    char buffer[4096];
    const auto n = read(descriptor, buffer, sizeof buffer);
    if (n == 0) return ending::closed;
    if (n > 0) text.append(buffer, static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) throw_errno("read");
  }
}

}  // namespace

const std::vector<int>& cores() {
  static const std::vector<int> known = allowed_cores();
  return known;
}

void pin(placement where, side which) {
  // First and last: on machines with simultaneous threads these are not two halves of one core.
  const int first = cores().back();
  const int second = cores().front();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (where == placement::core_each) {
    CPU_SET(which == side::caller ? first : second, &set);
  } else {
    CPU_SET(first, &set);
    if (where == placement::two_cores) CPU_SET(second, &set);
  }
  if (sched_setaffinity(0, sizeof set, &set) != 0) throw_errno("sched_setaffinity");
}

child::child(placement where, side which, const std::function<void()>& body)
    : pid_(fork_bound([&] {
        try {
          pin(where, which);
          body();
        } catch (const std::exception& e) {
          std::cerr << "bench: a measured process failed: " << e.what() << '\n';
          _exit(1);
        }
      })) {}

child::~child() {
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

outcome run_apart(placement where, std::chrono::seconds limit,
                  const std::function<figures()>& measure) {
  cores();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe2");
  const pid_t pid = fork_bound([&] {
    setpgid(0, 0);
    close(ends[0]);
    outcome result;
    try {
      pin(where, side::caller);
      result.values = measure();
    } catch (const std::exception& e) {
      result.error = e.what();
    }
    write_all(ends[1], to_text(result));
  });
  setpgid(pid, pid);  // both sides do it, so that it holds whoever comes first
  close(ends[1]);
  std::string text;
  const ending how = read_until(ends[0], std::chrono::steady_clock::now() + limit, text);
  close(ends[0]);
  if (how == ending::timed_out) kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  kill(-pid, SIGKILL);
  if (how == ending::timed_out) {
    return {{}, "no result within " + std::to_string(limit.count()) + " s"};
  }
  if (WIFSIGNALED(status))
    return {{}, std::string("ended by signal: ") + strsignal(WTERMSIG(status))};
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    return {{}, "exit status " + std::to_string(WEXITSTATUS(status))};
  }
  outcome result = from_text(text);
  if (result.values.empty() && result.error.empty()) result.error = "no figures";
  return result;
}

}  // namespace bench
