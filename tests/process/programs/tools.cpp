// SPDX-License-Identifier: BSL-1.0
// A worker that starts other programs: `tools <deed> [<transport>]`, as two workers; `tools tool
// <workers>` is one of those, and uses weft itself.
#include <weft/run.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tools {

using namespace std::chrono_literals;
using weft::worker;

std::string deed;
std::string self;

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

int one() { return 1; }

asio::awaitable<void> call_all(worker& me) {
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    if (co_await me.peer(r).call<&one>() != 1) throw std::runtime_error("not 1");
  }
}

/// In a tool.
asio::awaitable<void> tool_main(worker& me) {
  co_await call_all(me);
  say("tool: rank " + std::to_string(me.rank()) + " of " + std::to_string(me.world_size()));
}

/// Runs a tool by `command`, with a file of this process under every number from 3 to 40 that it
/// would have inherited one from the launcher by. What the tool wrote into that file.
void run_tool(const std::string& command) {
  char name[] = "/tmp/weft-test-XXXXXX";
  const int file = ::mkostemp(name, O_CLOEXEC);
  if (file < 0) throw std::runtime_error("no file");
  // The shell opens it under those numbers, so that they are none of ours.
  std::string numbers;
  for (int n = 3; n <= 40; ++n) {
    numbers += " " + std::to_string(n) + ">>" + std::string(name);
  }
  const int status = std::system(("exec bash -c 'exec" + numbers + "; " + command + "'").c_str());
  say("tool ended with " + std::to_string(WEXITSTATUS(status)) + ", wrote " +
      std::to_string(std::filesystem::file_size(name)));
  ::close(file);
  std::filesystem::remove(name);
}

std::string tool(const std::string& workers) { return self + " tool " + workers; }

/// The open files of this process that one which it starts would inherit, but for the standard
/// streams.
std::string inherited() {
  std::string out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    const int flags = ::fcntl(fd, F_GETFD);
    if (fd <= 2 || flags < 0 || (flags & FD_CLOEXEC) != 0) continue;
    std::error_code ec;
    out +=
        " " + std::to_string(fd) + "=" + std::filesystem::read_symlink(entry.path(), ec).string();
  }
  return out;
}

asio::awaitable<void> wait_for_ever() {
  say("waits, pid " + std::to_string(::getpid()) + " of a worker");
  co_await weft::sleep_for(1h);
}

asio::awaitable<void> main_(worker& me) {
  co_await call_all(me);
  if (deed == "descriptors") {
    for (std::uint32_t r = 0; r < me.world_size(); ++r) co_await me.peer(r).call<&one>();
    say("inherited by others:" + inherited());
  }
  if (deed.starts_with("within-") && me.rank() == static_cast<std::uint32_t>(deed.back() - '0')) {
    for (const char* workers : {"1", "2"}) run_tool(tool(workers));
    run_tool("RANK=0 WORLD_SIZE=1 MASTER_PORT=1 " + tool("2"));  // by another launcher
  }
  if (deed == "helper" && me.rank() == 1) {
    const pid_t helper = ::fork();
    if (helper == 0) {
      ::execlp("sleep", "sleep", "600", nullptr);
      ::_exit(127);
    }
    say("started pid " + std::to_string(helper) + " of a helper");
  }
  if (deed == "helper" && me.rank() == 0) {
    const auto r = co_await me.peer(1).call<&wait_for_ever>(weft::within(1h), weft::as_expected);
    say("heard: " + (r ? std::string("nothing") : r.error().message()));
  }
}

int run(const std::string& transport, weft::worker_main m, const weft::options& o) {
  return transport == "tcp" ? weft::run<weft::tcp>(std::move(m), o)
                            : weft::run<weft::unix_socket>(std::move(m), o);
}

}  // namespace tools

int main(int argc, char** argv) {
  using namespace tools;
  if (argc < 2) return 2;
  deed = argv[1];
  self = std::filesystem::canonical("/proc/self/exe").string();
  weft::options o;
  o.waiting = {};  // nothing is said, however slow the machine is
  o.workers = 2;
  o.rendezvous_deadline = 20s;
  o.on_loss = weft::loss_policy::go_on();
  if (deed == "tool") {
    o.workers = static_cast<std::uint32_t>(std::stoul(argv[2]));
    return run("unix", tool_main, o);
  }
  const std::string transport = argc > 2 ? argv[2] : "unix";
  if (argc > 3) o.io_threads = static_cast<unsigned>(std::stoul(argv[3]));
  const char* const given = std::getenv("RANK");  // NOLINT: before there are threads
  const std::string rank = given ? given : "";
  if (deed == "before" && !rank.empty()) {
    say("tool ended with " + std::to_string(WEXITSTATUS(std::system(tool("1").c_str()))));
    say("tool ended with " + std::to_string(WEXITSTATUS(std::system(tool("2").c_str()))));
  }
  if (deed == "fork" && !rank.empty()) {  // a process that watches over the one that works
    const pid_t works = ::fork();
    int status = 0;
    if (works != 0) return ::waitpid(works, &status, 0) == works ? WEXITSTATUS(status) : 1;
  }
  if (deed == "nest" && weft::placement_from_environment()) {  // each worker launches workers
    say("nested ended with " + std::to_string(WEXITSTATUS(std::system((self + " nest").c_str()))));
  }
  if (deed == "launch-in-worker") return weft::launch_local(o);
  // All that it has not opened itself.
  if (deed == "closes" || (deed == "descriptors" && rank.empty())) ::close_range(3, ~0u, 0);
  return run(transport, main_, o);
}
