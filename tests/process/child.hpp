// SPDX-License-Identifier: BSL-1.0
// A program as a child of the test: its output, its end, its end by force.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weft::testing {

class child {
 public:
  /// Nothing takes longer than this, or it has failed.
  static constexpr std::chrono::seconds patience{120};

  /// With these variables in its environment, and without those.
  explicit child(std::vector<std::string> command,
                 const std::vector<std::pair<std::string, std::string>>& environment = {},
                 const std::vector<std::string>& without = {})
      : under_way_("the child " + command.front(), patience + std::chrono::seconds(30)) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("child: no pipe");
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setpgid(0, 0);
      const ::rlimit no_core{};
      ::setrlimit(RLIMIT_CORE, &no_core);
      for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
        ::unsetenv(name);
      }
      for (const std::string& name : without) ::unsetenv(name.c_str());
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::execvp(argv[0], argv.data());
      ::_exit(126);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child() {
    if (!ended_) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] const std::string& output() const noexcept { return output_; }
  void kill(int signal) const { ::kill(pid_, signal); }

  /// Reads until the output contains `text` that often.
  void read_until(const std::string& text, int times = 1) {
    const auto until = std::chrono::steady_clock::now() + patience;
    // bounded: read_some throws after `patience`
    while (count(text) < times) {
      if (read_some(until)) continue;
      throw std::runtime_error("child: ended without '" + text + "'; it said:\n" + output_);
    }
  }
  /// Reads to the end; the exit status, or 128 + the signal.
  int wait() {
    const auto until = std::chrono::steady_clock::now() + patience;
    // bounded: read_some throws after `patience`
    while (read_some(until)) {
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  [[nodiscard]] bool said(const std::string& text) const {
    return output_.find(text) != std::string::npos;
  }
  [[nodiscard]] int count(const std::string& text) const {
    int n = 0;
    for (std::size_t at = 0; (at = output_.find(text, at)) != std::string::npos; ++at) ++n;
    return n;
  }
  /// From there to the end of the line; where it stands first, and last; "" if nowhere.
  [[nodiscard]] std::string line_from(const std::string& text) const {
    return line_at(output_.find(text));
  }
  [[nodiscard]] std::string last_line_from(const std::string& text) const {
    return line_at(output_.rfind(text));
  }
  /// The number behind the first `text`, and of those only that stand behind `part`.
  [[nodiscard]] std::int64_t number_after(const std::string& text,
                                          const std::string& part = "") const {
    const auto at = output_.find(text, std::min(output_.find(part), output_.size()));
    if (at == std::string::npos) throw std::runtime_error("child: did not say '" + text + "'");
    return std::stoll(output_.substr(at + text.size(), 24));
  }
  /// The numbers that follow "pid " in the output.
  [[nodiscard]] std::vector<pid_t> pids() const {
    std::vector<pid_t> out;
    for (std::size_t at = 0; (at = output_.find("pid ", at)) != std::string::npos; ++at) {
      out.push_back(static_cast<pid_t>(std::stol(output_.substr(at + 4, 12))));
    }
    return out;
  }

 private:
  [[nodiscard]] std::string line_at(std::size_t at) const {
    return at == std::string::npos ? "" : output_.substr(at, output_.find('\n', at) - at);
  }
  bool read_some(std::chrono::steady_clock::time_point until) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd wait{out_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&wait, 1, static_cast<int>(left.count())) <= 0) {
      throw std::runtime_error("child: neither speaks nor ends; it said:\n" + output_);
    }
    char chunk[4096];
    const auto got = ::read(out_, chunk, sizeof chunk);
    if (got <= 0) return false;
    output_.append(chunk, static_cast<std::size_t>(got));
    return true;
  }

  // Its own patience is what ends a wait for it.
  const test_part under_way_;
  pid_t pid_ = -1;
  int out_ = -1;
  std::string output_;
  bool ended_ = false;
};

/// Gone, or dead and not yet buried by whoever adopted it.
inline bool is_gone(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  const auto name_end = line.rfind(')');
  return name_end == std::string::npos || line.substr(name_end + 2, 1) == "Z";
}

/// Waits for something that must come, without saying how soon.
inline bool eventually(const std::function<bool()>& there) {
  const auto until = std::chrono::steady_clock::now() + child::patience;
  while (!there()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace weft::testing
