// SPDX-License-Identifier: BSL-1.0
// Starts this program again, once per worker of this machine, and watches over the processes.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/time.hpp>

#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weft {

struct launch_options {
  std::uint32_t workers = 1;
  /// Names for the log's prefixes and the report of a failure; default "worker<rank>".
  std::function<std::string(std::uint32_t rank, std::uint32_t size)> name;
  /// Takes each line that a worker prints, instead of printing it with its prefix.
  std::function<void(std::uint32_t rank, std::string_view line)> on_line;
  /// A worker that keeps this process's standard output and error, for a progress bar say.
  std::optional<std::uint32_t> foreground;
  /// How long the others may take to end by themselves after one has failed.
  duration grace = std::chrono::seconds(10);
};

namespace detail {

/// A listening socket on loopback, so that no other process can take the port meanwhile.
class listening_socket {
 public:
  listening_socket() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (fd_ < 0 || ::bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(fd_, 1024) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      const int code = errno;
      throw std::system_error(code, std::generic_category(), "weft: a socket for the rendezvous");
    }
    port_ = ntohs(address.sin_port);
  }
  listening_socket(const listening_socket&) = delete;
  listening_socket& operator=(const listening_socket&) = delete;
  ~listening_socket() { ::close(fd_); }
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

/// The arguments of this process, to be given again.
[[nodiscard]] inline std::vector<std::string> own_arguments() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> out;
  for (std::string argument; std::getline(in, argument, '\0');) out.push_back(argument);
  return out;
}

/// One supervised process: its pipe, its lines, its end.
struct child {
  std::uint32_t rank;
  std::string name;
  pid_t pid = -1;
  std::unique_ptr<asio::posix::stream_descriptor> pipe;
  std::string partial;
  char buffer[4096];
  bool ended = false;
  int status = 0;
};

[[nodiscard]] inline std::string ending_of(const child& c) {
  const std::string who = "worker '" + c.name + "' (rank " + std::to_string(c.rank) + ") ";
  if (WIFSIGNALED(c.status)) {
    const int signal = WTERMSIG(c.status);
    const char* const text = ::strsignal(signal);
    return who + "was killed by signal " + std::to_string(signal) + " (" + (text ? text : "?") +
           ")";
  }
  return who + "exited with status " + std::to_string(WEXITSTATUS(c.status));
}

template <class = void>
class supervisor {  // a template only so that it is compiled where it is used
 public:
  explicit supervisor(launch_options o) : options_(std::move(o)) {
    if (!options_.name) {
      options_.name = [](std::uint32_t rank, std::uint32_t) {
        return "worker" + std::to_string(rank);
      };
    }
    if (!options_.on_line) {
      options_.on_line = [this](std::uint32_t rank, std::string_view line) {
        // A foreground worker's bar may stand on the last line of a terminal: write over it.
        const bool over = options_.foreground && ::isatty(STDOUT_FILENO) != 0;
        std::string text = over ? "\r\x1b[2K[" : "[";
        text += children_[rank]->name + "] ";
        text += line;
        text += '\n';
        std::cout << text << std::flush;
      };
    }
  }

  /// 0, or the exit status for this process.
  int run() {
    for (std::uint32_t rank = 0; rank < options_.workers; ++rank) start(rank);
    watch_signals();
    context_.run();
    if (interrupted_) return 130;
    return first_failure_.empty() ? 0 : 1;
  }

 private:
  void start(std::uint32_t rank);
  void read(child& c);
  void read_last(child& c);
  void print(child& c, std::string_view text);
  void watch_signals();
  void reap();
  void stop(int signal) {
    for (auto& c : children_) {
      if (!c->ended) ::kill(c->pid, signal);
    }
  }
  void force_after(duration d) {
    force_->arm(clock_.now() + d, [this] { stop(SIGKILL); });
  }

  launch_options options_;
  listening_socket store_;
  asio::io_context context_{1};
  asio::signal_set signals_{context_, SIGINT, SIGTERM, SIGCHLD};
  real_clock clock_;
  std::unique_ptr<timer> force_ = clock_.make_timer(context_);
  std::vector<std::unique_ptr<child>> children_;
  std::size_t running_ = 0;
  std::string first_failure_;
  bool interrupted_ = false;
};

template <class T>
void supervisor<T>::start(std::uint32_t rank) {
  auto c = std::make_unique<child>();
  c->rank = rank;
  c->name = options_.name(rank, options_.workers);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "weft: a pipe for a worker");
  }
  // Everything that the child needs is made before the fork; after it only system calls follow.
  std::vector<std::string> environment;
  auto set = [&](const std::string& key, const std::string& value) {
    std::erase_if(environment, [&](const std::string& e) { return e.starts_with(key + "="); });
    environment.push_back(key + "=" + value);
  };
  for (char** e = environ; *e; ++e) environment.emplace_back(*e);
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(options_.workers));
  set("LOCAL_WORLD_SIZE", std::to_string(options_.workers));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(store_.port()));
  set("WEFT_STORE_FD", std::to_string(store_.fd()));
  std::vector<std::string> arguments = own_arguments();
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (std::string& a : arguments) argv.push_back(a.data());
  for (std::string& e : environment) envp.push_back(e.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const bool foreground = options_.foreground == rank;
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw std::system_error(errno, std::generic_category(), "weft: starting a worker");
  }
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);  // Ctrl-C reaches the supervisor, which stops the workers
    if (!foreground) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
    }
    if (rank != 0) ::close(store_.fd());
    ::execve("/proc/self/exe", argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  c->pid = pid;
  c->pipe = std::make_unique<asio::posix::stream_descriptor>(context_, ends[0]);
  ++running_;
  children_.push_back(std::move(c));
  read(*children_.back());
}

template <class T>
void supervisor<T>::read(child& c) {
  c.pipe->async_read_some(asio::buffer(c.buffer),
                          [this, &c](const asio::error_code& ec, std::size_t size) {
                            print(c, std::string_view(c.buffer, size));
                            if (!ec && running_ > 0) {
                              read(c);
                            } else {
                              read_last(c);
                            }
                          });
}

/// What a worker left in its pipe when the last one ended. Not until the pipe is closed: a process
/// that a worker started may hold it for as long as it likes.
template <class T>
void supervisor<T>::read_last(child& c) {
  asio::error_code ec;
  asio::posix::stream_descriptor::bytes_readable left;
  c.pipe->io_control(left, ec);
  for (std::size_t more = ec ? 0 : left.get(); more > 0;) {
    const std::size_t size = std::min(more, sizeof c.buffer);
    const std::size_t got = c.pipe->read_some(asio::buffer(c.buffer, size), ec);
    print(c, std::string_view(c.buffer, got));
    if (ec) break;
    more -= got;
  }
  if (!c.partial.empty()) options_.on_line(c.rank, std::exchange(c.partial, {}));
  c.pipe->close(ec);
}

template <class T>
void supervisor<T>::print(child& c, std::string_view text) {
  c.partial += text;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = c.partial.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    options_.on_line(c.rank, std::string_view(c.partial).substr(begin, end - begin));
  }
  c.partial.erase(0, begin);
}

template <class T>
void supervisor<T>::watch_signals() {
  signals_.async_wait([this](const asio::error_code& ec, int signal) {
    if (ec) return;
    if (signal == SIGCHLD) {
      reap();
    } else {
      interrupted_ = true;
      stop(SIGTERM);
      force_after(std::chrono::seconds(1));
    }
    if (running_ > 0) watch_signals();
  });
  reap();  // one may have ended before the signals were watched
}

template <class T>
void supervisor<T>::reap() {
  // Of several that ended meanwhile, the one to name is the one that did not end by itself.
  const child* failed = nullptr;
  for (auto& c : children_) {
    if (c->ended || ::waitpid(c->pid, &c->status, WNOHANG) != c->pid) continue;
    c->ended = true;
    --running_;
    if (c->status == 0) continue;
    if (!failed || (WIFSIGNALED(c->status) && !WIFSIGNALED(failed->status))) failed = c.get();
  }
  if (failed && !interrupted_ && first_failure_.empty()) {
    first_failure_ = ending_of(*failed);
    std::cerr << "weft: " << first_failure_ << "; the run ends" << std::endl;
    force_after(options_.grace);
  }
  if (running_ == 0) {
    asio::error_code ignored;
    signals_.cancel(ignored);
    force_->cancel();
    for (auto& c : children_) c->pipe->cancel(ignored);
  }
}

}  // namespace detail

/// Runs this program again as `o.workers` processes with RANK, WORLD_SIZE and a meeting point in
/// their environment, prints what they print with a prefix, and waits for their end. The first
/// one to fail is named on standard error; SIGINT and SIGTERM stop them all within 2 s; they die
/// with this process. Returns the exit status: 0, 1 if a worker failed, 130 if interrupted.
/// To be called in the program's first process only: `placement_from_environment()` tells.
template <class = void>
[[nodiscard]] int launch_local(launch_options o) {
  return detail::supervisor<>(std::move(o)).run();
}

}  // namespace weft
