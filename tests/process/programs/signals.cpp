// SPDX-License-Identifier: BSL-1.0
// A program with habits of its own about signals and children: `signals <habit> <deed>`, as two
// workers. The launching process has the habit; its workers say what they begin with.
#include <weft/run.hpp>
#include <weft/transport/unix_socket.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace signals {

using namespace std::chrono_literals;
using weft::worker;

constexpr std::array<int, 3> numbers = {SIGINT, SIGTERM, SIGCHLD};
constexpr int compared = SA_RESTART | SA_NODEFER | SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO;
std::string habit;
std::string deed;

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

int one() { return 1; }

asio::awaitable<void> main_(worker& me) {
  if (co_await me.peer(1 - me.rank()).call<&one>() != 1) throw std::runtime_error("not 1");
  say("called, pid " + std::to_string(::getpid()));
  if (deed == "die" && me.rank() == 1) ::raise(SIGKILL);
  if (deed == "wait" || deed == "die") co_await weft::sleep_for(1h);
}

/// What this thread blocks and this process ignores or catches, of the signals that a program may.
std::string state() {
  ::sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  int blocked = 0;
  for (int n = 1; n < SIGRTMIN; ++n) blocked += ::sigismember(&mask, n) == 1 ? 1 : 0;
  std::string out = "blocked " + std::to_string(blocked);
  for (const int n : numbers) {
    struct ::sigaction now{};
    ::sigaction(n, nullptr, &now);
    out += now.sa_handler == SIG_DFL ? " default" : now.sa_handler == SIG_IGN ? " ignored" : " own";
  }
  return out;
}

void block(bool all) {
  ::sigset_t some;
  ::sigemptyset(&some);
  if (all) ::sigfillset(&some);
  ::sigaddset(&some, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &some, nullptr);
}
void nothing(int) {}
void collect(int) {
  const int before = errno;
  for (int n = 0; n < 100 && ::waitpid(-1, nullptr, WNOHANG) > 0; ++n) {
  }
  errno = before;
}
void set(int signal, void (*handler)(int), int flags = 0) {
  struct ::sigaction own{};
  own.sa_handler = handler;
  own.sa_flags = flags;
  ::sigaddset(&own.sa_mask, SIGUSR2);
  ::sigaction(signal, &own, nullptr);
}

/// Collects every child of this process, for a minute or until it is over.
class collector {
 public:
  collector() {
    for (int n = 0; n < 600 && !began_; ++n) std::this_thread::sleep_for(100ms);
  }
  ~collector() {
    over_ = true;
    thread_.join();
  }

 private:
  void run() {
    began_ = true;
    for (int n = 0; n < 60'000 && !over_; ++n) {
      if (::waitpid(-1, nullptr, 0) < 0) std::this_thread::sleep_for(1ms);
    }
  }
  std::atomic<bool> began_{false};
  std::atomic<bool> over_{false};
  std::thread thread_{[this] { run(); }};
};

/// As a sandbox does whose kernel is older.
void refuse_pidfds() {
  ::sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const ::sock_fprog all{4, program};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all, 0, 0) != 0) std::exit(77);
}

int launch(weft::options o) {
  if (deed != "throw") return weft::run<weft::unix_socket>(main_, o);
  weft::launch_options l;
  l.workers = 2;
  l.on_line = [](std::uint32_t, std::string_view) { throw std::runtime_error("no more lines"); };
  try {
    return weft::launch_local(l);
  } catch (const std::exception& e) {
    say(std::string("threw ") + e.what());
    return 1;
  }
}

}  // namespace signals

int main(int argc, char** argv) {
  using namespace signals;
  if (argc < 3) return 2;
  habit = argv[1];
  deed = argv[2];
  weft::options o;
  o.workers = 2;
  if (weft::placement_from_environment()) {
    say("begins with " + state());
    return weft::run<weft::unix_socket>(main_, o);
  }
  if (habit == "block-child") block(false);
  if (habit == "block-all") block(true);
  if (habit == "inherit") {  // from a program that executes this one
    block(true);
    set(SIGCHLD, SIG_IGN);
    ::execl("/proc/self/exe", argv[0], "none", argv[2], nullptr);
    return 2;
  }
  if (habit == "ignore") {
    for (const int n : numbers) set(n, SIG_IGN);
  }
  if (habit == "collect") set(SIGCHLD, collect, SA_RESTART | SA_NOCLDSTOP);
  if (habit == "no-zombies") set(SIGCHLD, nothing, SA_NOCLDWAIT);
  if (habit == "handlers") {
    set(SIGINT, nothing, SA_RESTART);
    set(SIGTERM, nothing, SA_NODEFER);
    set(SIGCHLD, nothing, SA_NOCLDSTOP | SA_RESTART);
  }
  if (habit == "refused") refuse_pidfds();
  std::array<struct ::sigaction, 3> before{};
  for (std::size_t n = 0; n < numbers.size(); ++n) ::sigaction(numbers[n], nullptr, &before[n]);
  const std::string state_before = state();
  int status = 0;
  if (habit == "wait-for-any") {
    const collector other;
    status = launch(o);
  } else {
    status = launch(o);
  }
  bool same = state() == state_before;
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    struct ::sigaction now{};
    ::sigaction(numbers[n], nullptr, &now);
    // What TSan gives the kernel blocks every signal while nothing is done about one.
    const bool own = now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN;
    same = same && now.sa_handler == before[n].sa_handler &&
           ((now.sa_flags ^ before[n].sa_flags) & compared) == 0 &&
           (!own ||
            ::sigismember(&now.sa_mask, SIGUSR2) == ::sigismember(&before[n].sa_mask, SIGUSR2));
  }
  say(same ? "as before" : "not as before: " + state_before + ", now " + state());
  return status;
}
