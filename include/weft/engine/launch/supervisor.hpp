// SPDX-License-Identifier: BSL-1.0
// The process that watches over the workers of one machine: it starts them, prints what they print,
// passes signals on, collects them, and names the one that failed.
#pragma once

#include <weft/core/detail/descriptor.hpp>
#include <weft/core/real_clock.hpp>
#include <weft/engine/launch/descriptor_limit.hpp>
#include <weft/engine/launch/first_failure.hpp>
#include <weft/engine/launch/launch.hpp>
#include <weft/engine/launch/launch_mark.hpp>
#include <weft/engine/launch/launch_signals.hpp>
#include <weft/engine/launch/line_splitter.hpp>
#include <weft/engine/launch/started_process.hpp>
#include <weft/rpc/options.hpp>

#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <memory>
#include <system_error>
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
namespace engine {

[[noreturn]] inline void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// Before anything is made for each of them.
inline void check_workers(std::uint32_t workers) {
  if (workers <= max_workers_per_host) return;
  throw rpc_error(errc::invalid_argument, std::to_string(workers) +
                                              " workers are more than one host may have: at most " +
                                              std::to_string(max_workers_per_host));
}

/// A listening socket on loopback, so that no other process can take the port meanwhile.
class listening_socket {
 public:
  listening_socket() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (!fd_ || ::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(fd_.get(), 1024) != 0 ||
        ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw_errno("weft: a socket for the rendezvous");
    }
    port_ = ntohs(address.sin_port);
  }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Once it is another process's: with that, the port is to end.
  void close() noexcept { fd_ = descriptor(); }

 private:
  descriptor fd_;
  std::uint16_t port_ = 0;
};

/// The arguments of this process, to be given again.
[[nodiscard]] inline std::vector<std::string> own_arguments() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> out;
  for (std::string argument; std::getline(in, argument, '\0');) out.push_back(argument);
  return out;
}

/// One supervised process: its output, its report, its end.
struct child {
  std::uint32_t rank;
  std::string name;
  std::unique_ptr<started_process> process;
  std::unique_ptr<asio::posix::stream_descriptor> pipe;
  std::unique_ptr<asio::posix::stream_descriptor> report;
  line_splitter lines;
  char buffer[4096];
  bool ended = false;
};

class supervisor {
 public:
  explicit supervisor(launch_options o) : options_(std::move(o)) {
    if (!options_.name) {
      options_.name = [](std::uint32_t rank, std::uint32_t) {
        return "worker" + std::to_string(rank);
      };
    }
    std::vector<std::string> names;
    std::vector<bool> may_go;
    for (std::uint32_t r = 0; r < options_.workers; ++r) {
      names.push_back(options_.name(r, options_.workers));
      may_go.push_back(options_.may_go && options_.may_go(r));
    }
    finder_ = first_failure(std::move(names), may_go);
  }
  ~supervisor() {
    stop(SIGKILL);  // where starting them threw
    for (auto& c : children_) {
      if (!c->ended) c->process->wait();
    }
  }

  /// 0, or the exit status for this process.
  int supervise();

 private:
  void start(std::uint32_t rank);
  void read(child& c);
  void read_last(child& c);
  void print(child& c, std::string_view text);
  void print_line(const child& c, std::string_view line);
  void watch_signals();
  void interrupt(int signal);
  void await_end(child& c);
  void reap(const child& one);
  void listen(child& c);
  enum class report_pipe : std::uint8_t { open, closed };
  report_pipe hear(child& c);
  void judge();
  void tell_gone();
  void say(const std::string& sentence);
  void force();
  void stop(int signal) {
    for (auto& c : children_) {
      if (!c->ended) c->process->send(signal);
    }
  }
  void force_within(duration d) { force_by(later(clock_.now(), d)); }
  void force_by(time_point when) {
    if (force_at_ && *force_at_ <= when) return;
    force_at_ = when;
    force_->arm(when, [this] { force(); });
  }

  launch_options options_;
  steady_streams streams_;
  const std::uint64_t depth_ = depth_of_launch();
  listening_socket store_;
  asio::io_context context_{1};
  launch_signals signals_{context_};
  real_clock clock_;
  std::unique_ptr<timer> force_ = clock_.make_timer(context_);
  std::unique_ptr<timer> settle_ = clock_.make_timer(context_);
  std::optional<time_point> force_at_;
  std::vector<std::unique_ptr<child>> children_;
  std::size_t running_ = 0;
  first_failure finder_{{}};
  enum class stage : std::uint8_t { running, settling, said } stage_ = stage::running;
  bool forcing_ = false;
  std::optional<int> interrupted_;  // by that signal
  bool output_lost_ = false;
};

inline int supervisor::supervise() {
  const std::string workers = options_.workers == 1 ? " worker" : " workers";
  need_descriptors(3 * std::size_t{options_.workers} + 10,
                   "the launcher of " + std::to_string(options_.workers) + workers);
  started_process::need();
  for (std::uint32_t rank = 0; rank < options_.workers; ++rank) start(rank);
  store_.close();
  watch_signals();
  context_.run();
  if (interrupted_) return 128 + *interrupted_;
  return stage_ == stage::said || output_lost_ ? 1 : 0;
}

inline void supervisor::start(std::uint32_t rank) {
  auto c = std::make_unique<child>();
  c->rank = rank;
  c->name = options_.name(rank, options_.workers);
  int output[2];
  int report[2];
  if (::pipe2(output, O_CLOEXEC) != 0) throw_errno("weft: a pipe for a worker");
  const descriptor output_end(output[1]);
  c->pipe = std::make_unique<asio::posix::stream_descriptor>(context_, output[0]);
  if (::pipe2(report, O_CLOEXEC | O_NONBLOCK) != 0) throw_errno("weft: a pipe for a worker");
  const descriptor report_end(report[1]);
  c->report = std::make_unique<asio::posix::stream_descriptor>(context_, report[0]);
  int go[2];
  if (::pipe2(go, O_CLOEXEC) != 0) throw_errno("weft: a pipe for a worker");
  const descriptor may_go_on(go[0]);
  descriptor goes_on(go[1]);
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
  set("TORCHELASTIC_USE_AGENT_STORE", "");  // of another run
  set("WEFT_REPORT_FD", described(report_end.get()));
  set("WEFT_STORE_FD", rank == 0 ? described(store_.fd()) : "");
  constexpr std::string_view process = "0000000000";  // whose number the child writes there
  set("WEFT_LAUNCHED",
      std::string(process) + ":" + std::to_string(store_.port()) + ":" + std::to_string(depth_));
  char* const process_ends =
      environment.back().data() + std::string_view("WEFT_LAUNCHED=").size() + process.size();
  std::vector<std::string> arguments = own_arguments();
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (std::string& a : arguments) argv.push_back(a.data());
  for (std::string& e : environment) envp.push_back(e.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const bool foreground = options_.foreground == rank;
  const pid_t parent = ::getpid();
  const pid_t pid = fork_blocked();
  if (pid < 0) throw_errno("weft: starting a worker");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::close(goes_on.get());
    // Not before the parent has the descriptor of this process; never, if it gets none.
    if (char word = 0; ::read(may_go_on.get(), &word, 1) != 1) ::_exit(127);
    ::setpgid(0, 0);  // Ctrl-C reaches the supervisor, which stops the workers
    if (!foreground) {
      ::dup2(output_end.get(), STDOUT_FILENO);
      ::dup2(output_end.get(), STDERR_FILENO);
    }
    char* digit = process_ends;
    for (pid_t n = ::getpid(); n > 0; n /= 10) *--digit = static_cast<char>('0' + n % 10);
    if (rank == 0) ::fcntl(store_.fd(), F_SETFD, 0);
    ::fcntl(report_end.get(), F_SETFD, 0);
    streams_.undo();
    launch_signals::undo();
    ::execve("/proc/self/exe", argv.data(), envp.data());
    ::_exit(127);
  }
  try {
    c->process = std::make_unique<started_process>(context_, pid);
  } catch (const std::exception&) {
    goes_on = descriptor();
    ::waitpid(pid, nullptr, 0);
    throw;
  }
  [[maybe_unused]] const auto told = ::write(goes_on.get(), "", 1);
  ++running_;
  children_.push_back(std::move(c));
  read(*children_.back());
  listen(*children_.back());
  await_end(*children_.back());
}

inline void supervisor::read(child& c) {
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
inline void supervisor::read_last(child& c) {
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
  c.lines.finish([&](std::string_view line) { print_line(c, line); });
  c.pipe->close(ec);
}

inline void supervisor::print(child& c, std::string_view text) {
  c.lines.add(text, [&](std::string_view line) { print_line(c, line); });
}

inline void supervisor::print_line(const child& c, std::string_view line) {
  if (options_.on_line) return options_.on_line(c.rank, line);
  if (output_lost_) return;
  // A foreground worker's bar may stand on the last line of a terminal: write over it.
  const bool over = options_.foreground && ::isatty(STDOUT_FILENO) != 0;
  std::string text = over ? "\r\x1b[2K[" : "[";
  text += c.name + "] ";
  text += line;
  text += '\n';
  if (std::cout << text << std::flush) return;
  output_lost_ = true;
  engine::say("", "standard output was closed; the run ends");
  stop(SIGTERM);
  force_within(std::chrono::seconds(1));
}

inline void supervisor::watch_signals() {
  signals_.async_wait([this](const asio::error_code& ec, int signal) {
    if (ec) return;
    interrupt(signal);
    stop(SIGTERM);
    force_within(std::chrono::seconds(1));
    if (running_ > 0) watch_signals();
  });
}

inline void supervisor::await_end(child& c) {
  c.process->async_wait([this, &c](const asio::error_code& ec) {
    if (!ec && !c.ended) reap(c);
  });
}

/// The first signal is what ended the run, unless something else has already, and was said.
inline void supervisor::interrupt(int signal) {
  if (interrupted_ || output_lost_ || stage_ == stage::said) return;
  interrupted_ = signal;
  say(std::string("the run was ended by ") + (signal == SIGINT ? "SIGINT" : "SIGTERM"));
}

inline void supervisor::listen(child& c) {
  c.report->async_wait(asio::posix::stream_descriptor::wait_read, [this, &c](asio::error_code ec) {
    if (ec || running_ == 0 || hear(c) == report_pipe::closed) return;
    judge();
    listen(c);
  });
}

/// What the worker has said by now.
inline supervisor::report_pipe supervisor::hear(child& c) {
  char text[4096];
  for (;;) {
    const ::ssize_t got = ::read(c.report->native_handle(), text, sizeof text);
    if (got <= 0) return got == 0 ? report_pipe::closed : report_pipe::open;
    finder_.heard(c.rank, std::string_view(text, static_cast<std::size_t>(got)));
  }
}

/// `one` has surely ended, though a debugger may keep others from collecting it.
inline void supervisor::reap(const child& one) {
  // Those that were killed first: of several that ended meanwhile, they did not end by themselves.
  std::vector<std::pair<child*, std::optional<int>>> ends;
  for (auto& c : children_) {
    if (c->ended) continue;
    auto end = c->process->ended();
    if (!end && c.get() == &one) end = process_end{};
    if (!end) continue;
    c->ended = true;
    --running_;
    const bool killed = end->status && WIFSIGNALED(*end->status);
    ends.insert(killed ? ends.begin() : ends.end(), {c.get(), end->status});
  }
  for (auto& c : children_) hear(*c);
  for (const auto& [c, status] : ends) {
    if (!forcing_) finder_.ended(c->rank, status);
  }
  judge();
  if (running_ > 0) return;
  asio::error_code ignored;
  signals_.cancel();
  force_->cancel();
  settle_->cancel();
  for (auto& c : children_) {
    c->pipe->cancel(ignored);
    c->report->cancel(ignored);
  }
}

inline void supervisor::judge() {
  tell_gone();
  if (interrupted_ || output_lost_) return;
  if (finder_.failed()) {
    force_within(options_.grace);
    if (stage_ == stage::said) return;
    if (const auto& culprit = finder_.culprit()) {
      say(*culprit + "; the run ends");
    } else if (running_ == 0) {
      say(*finder_.suspect() + "; the run ends");
    } else if (stage_ == stage::running) {
      // Some blame another, whose own end says more: it may be on its way.
      stage_ = stage::settling;
      settle_->arm(clock_.now() + std::chrono::seconds(1), [this] {
        if (stage_ == stage::settling) say(*finder_.suspect() + "; the run ends");
      });
    }
  } else if (finder_.ended_well()) {
    force_by(later(later(clock_.now(), options_.shutdown), options_.grace));
  }
}

/// Of those that may go. Not if the run ends for another reason: then that is what there is to say.
inline void supervisor::tell_gone() {
  const std::vector<std::string> gone = finder_.take_gone();
  if (interrupted_ || output_lost_ || stage_ == stage::said || finder_.failed()) return;
  for (const std::string& how : gone) {
    engine::say("", how + "; the run goes on without it");
  }
}

inline void supervisor::say(const std::string& sentence) {
  stage_ = stage::said;
  engine::say("", sentence);
}

/// Their time is over.
inline void supervisor::force() {
  if (!interrupted_ && !output_lost_ && stage_ != stage::said) {
    if (const auto suspect = finder_.suspect()) {
      say(*suspect + "; the run ends");
    } else {
      for (const auto& c : children_) {
        if (c->ended) continue;
        const std::string how = finder_.who(c->rank) + "did not end with the run; it is killed";
        if (finder_.may_go(c->rank)) {
          engine::say("", how);
        } else {
          say(how);
        }
      }
    }
  }
  forcing_ = true;
  stop(SIGKILL);
}

}  // namespace engine

}  // namespace weft
