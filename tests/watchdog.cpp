// SPDX-License-Identifier: BSL-1.0
#include "watchdog.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::testing {
namespace {

using clock = std::chrono::steady_clock;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_TEST_SANITIZED
#endif
#endif
#if defined(WEFT_TEST_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int slower = 2;
#else
constexpr int slower = 1;
#endif

// ── where a thread is: it notes its own stack when it gets the signal ────────────────────────

constexpr int ask = SIGUSR2;
struct {
  std::array<void*, 64> frames{};
  std::atomic<int> count{0};
  std::atomic<bool> noted{false};
  const void* (*on_main_thread)() = nullptr;
  const void* found = nullptr;
} answer;

void note_stack(int) {
  const int before = errno;
  if (::getpid() == static_cast<pid_t>(::syscall(SYS_gettid)) && answer.on_main_thread) {
    answer.found = answer.on_main_thread();
  }
  answer.count = ::backtrace(answer.frames.data(), static_cast<int>(answer.frames.size()));
  answer.noted = true;
  errno = before;
}

/// The functions of one module, by the tool that is there; "" without one.
std::string names_of(const std::string& module, const std::vector<std::uintptr_t>& offsets) {
  // GNU's may never end on a program that was linked with --gc-sections.
  std::string command = "timeout 20 $(command -v llvm-addr2line-19 || command -v llvm-addr2line || "
                        "echo addr2line) -Cfpi -e '" +
                        module + "'";
  char number[32];
  for (const std::uintptr_t at : offsets) {
    std::snprintf(number, sizeof number, " %#" PRIxPTR, at);
    command += number;
  }
  std::string out;
  if (std::FILE* const pipe = ::popen((command + " 2>/dev/null").c_str(), "r")) {
    char chunk[4096];
    // bounded: the tool's output ends
    while (const std::size_t got = std::fread(chunk, 1, sizeof chunk, pipe)) out.append(chunk, got);
    ::pclose(pipe);
  }
  return out;
}

void say_stack() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  Dl_info self{};
  ::dladdr(reinterpret_cast<void*>(&note_stack), &self);
  std::vector<std::uintptr_t> ours;
  const int count = answer.count;
  for (int i = 0; i < count; ++i) {
    void* const at = answer.frames[static_cast<std::size_t>(i)];
    Dl_info where{};
    if (::dladdr(at, &where) == 0) continue;
    if (where.dli_fbase == self.dli_fbase) {
      // The caller's address is behind the call.
      ours.push_back(reinterpret_cast<std::uintptr_t>(at) -
                     reinterpret_cast<std::uintptr_t>(where.dli_fbase) - 1);
      continue;
    }
    const char* const slash = std::strrchr(where.dli_fname, '/');
    std::fprintf(stderr, "    %s in %s\n", where.dli_sname ? where.dli_sname : "?",
                 slash ? slash + 1 : where.dli_fname);
  }
  const std::string names = names_of(program, ours);
  std::fprintf(stderr, "  in this program, innermost first:\n%s", names.c_str());
  if (names.empty()) {
    for (const std::uintptr_t at : ours) std::fprintf(stderr, "    +%#" PRIxPTR "\n", at);
  }
}

void say_all_stacks() {
  const auto me = static_cast<pid_t>(::syscall(SYS_gettid));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const auto thread = static_cast<pid_t>(std::stol(entry.path().filename().string()));
    if (thread == me) continue;
    std::fprintf(stderr, "thread %d%s:\n", thread, thread == ::getpid() ? " (main)" : "");
    answer.noted = false;
    ::syscall(SYS_tgkill, ::getpid(), thread, ask);
    const auto until = clock::now() + std::chrono::seconds(2);
    while (!answer.noted && clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (answer.noted) {
      say_stack();
    } else {
      std::fprintf(stderr, "  does not answer\n");
    }
    std::fflush(stderr);
  }
}

// ── the watching thread ──────────────────────────────────────────────────────────────────────

class hound {
 public:
  static hound& instance() {
    static hound one;
    return one;
  }
  void watch(const char* test, std::function<std::uint64_t()> progress,
             std::function<std::string(const void*)> more) {
    const std::lock_guard hold(lock_);
    test_ = test;
    progress_ = std::move(progress);
    more_ = std::move(more);
    since_ = clock::now();
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  void unwatch() {
    const std::lock_guard hold(lock_);
    test_ = nullptr;
  }
  std::uint64_t add(std::string what, std::chrono::seconds patience) {
    const std::lock_guard hold(lock_);
    since_ = clock::now();
    parts_[++last_key_] = {std::move(what), patience};
    return last_key_;
  }
  void remove(std::uint64_t key) {
    const std::lock_guard hold(lock_);
    since_ = clock::now();
    parts_.erase(key);
  }

 private:
  struct part {
    std::string what;
    std::chrono::seconds patience;
  };

  hound() {
    void* warm = nullptr;
    static_cast<void>(::backtrace(&warm, 1));  // loads what it needs, which no handler may
    struct sigaction act{};
    act.sa_handler = &note_stack;
    act.sa_flags = SA_RESTART;
    ::sigaction(ask, &act, nullptr);
  }
  ~hound() {
    {
      const std::lock_guard hold(lock_);
      over_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void run() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // a test's signals are its own threads'
    const char* const given = std::getenv("WEFT_TEST_PATIENCE");  // seconds
    const auto general = given ? std::chrono::seconds(std::atoi(given)) : watchdog_patience;
    std::unique_lock hold(lock_);
    std::uint64_t seen = 0;
    // bounded: the program's end
    while (!wake_.wait_for(hold, std::chrono::seconds(1), [this] { return over_; })) {
      if (!test_) continue;
      const std::uint64_t now = progress_();
      if (std::exchange(seen, now) != now) since_ = clock::now();
      auto patience = general;
      if (!given) {
        for (const auto& [key, p] : parts_) patience = std::max(patience, p.patience);
      }
      if (clock::now() - since_ > patience * slower) bark();
    }
  }
  [[noreturn]] void bark() {
    std::fprintf(stderr, "\nthe test hangs: %s\n", test_);
    for (const auto& [key, p] : parts_) std::fprintf(stderr, "  in %s\n", p.what.c_str());
    std::fflush(stderr);
    say_all_stacks();
    if (more_) std::fprintf(stderr, "%s\n", more_(answer.found).c_str());
    std::fflush(stderr);
    ::signal(SIGABRT, SIG_DFL);  // doctest would report what this has said, and wait for this
    sigset_t abortion;
    ::sigemptyset(&abortion);
    ::sigaddset(&abortion, SIGABRT);
    ::pthread_sigmask(SIG_UNBLOCK, &abortion, nullptr);
    std::abort();
  }

  std::mutex lock_;
  std::condition_variable wake_;
  bool over_ = false;
  const char* test_ = nullptr;
  std::function<std::uint64_t()> progress_;
  std::function<std::string(const void*)> more_;
  std::map<std::uint64_t, part> parts_;
  std::uint64_t last_key_ = 0;
  clock::time_point since_{};
  std::thread thread_;
};

}  // namespace

test_part::test_part(std::string what, std::chrono::seconds patience)
    : key_(hound::instance().add(std::move(what), patience)) {}
test_part::~test_part() { hound::instance().remove(key_); }

void watch(const char* test, std::function<std::uint64_t()> progress,
           const void* (*on_main_thread)(), std::function<std::string(const void*)> more) {
  answer.on_main_thread = on_main_thread;
  hound::instance().watch(test, std::move(progress), std::move(more));
}
void unwatch() { hound::instance().unwatch(); }

}  // namespace weft::testing
