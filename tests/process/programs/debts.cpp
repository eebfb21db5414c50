// SPDX-License-Identifier: BSL-1.0
// `debts <tcp|unix> <plain|coroutine> <one|both>`: two workers, of which rank 1, or both, ask the
// other for 100 replies of 40 MB at once. Rank 1 stops itself when it has the first; whoever sends
// SIGCONT lets it go on.
#include "../resident.hpp"
#include <weft/run.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <signal.h>
#include <unistd.h>

/// AddressSanitizer keeps what was freed for a while, which nobody holds.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=1"; }

namespace debts {

using namespace std::chrono_literals;
using weft::worker;

bool plain = true;
bool both = false;

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

constexpr int replies = 100;
constexpr std::int64_t numbers = 10'000'000;  // of four bytes

at::Tensor make(const worker& me, int n) {
  at::Tensor t = at::full({numbers}, n, at::kInt);
  say("rank " + std::to_string(me.rank()) + " made one");
  return t;
}
at::Tensor give(worker& me, int n) { return make(me, n); }
asio::awaitable<at::Tensor> give_later(worker& me, int n) { co_return make(me, n); }

/// A number of each page: a check of all of them would be slower than the wire.
bool is_right(const at::Tensor& t, int n) {
  if (t.numel() != numbers || t.scalar_type() != at::kInt) return false;
  const int* const all = static_cast<const int*>(t.const_data_ptr());
  for (std::int64_t i = 0; i < numbers; i += 1024) {
    if (all[i] != n) return false;
  }
  return all[numbers - 1] == n;
}

int got = 0;  // on the worker's thread
asio::awaitable<void> ask(worker& me, int n) {
  const weft::peer other = me.peer(1 - me.rank());
  const at::Tensor t = co_await (plain ? other.call<&give>(n) : other.call<&give_later>(n));
  if (!is_right(t, n)) throw std::runtime_error("a reply is not what was sent");
  if (++got == 1 && me.rank() == 1) {
    say("rank 1 stops");
    ::raise(SIGSTOP);
  }
}

/// The other one is there, and has made one small reply.
int greet() { return 1; }
/// Returns once this worker has said what it holds when it owes nothing.
const weft::intrusive_ptr<weft::event> said = weft::make_intrusive<weft::event>();
asio::awaitable<void> idle_known() { co_await weft::event::wait(said); }

asio::awaitable<void> main_(worker& me) {
  static_cast<void>(co_await me.peer(1 - me.rank()).call<&greet>());
  say("rank " + std::to_string(me.rank()) + " holds " +
      std::to_string(weft::testing::resident_kib(::getpid())) + " kB, pid " +
      std::to_string(::getpid()));
  said->set();
  co_await me.peer(1 - me.rank()).call<&idle_known>();
  if (!both && me.rank() == 0) co_return;
  std::vector<weft::future<void>> all;
  for (int n = 0; n < replies; ++n) all.push_back(me.spawn(ask(me, n)));
  for (auto& one : all) co_await std::move(one);
  say("rank " + std::to_string(me.rank()) + " has all");
}

}  // namespace debts

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  debts::plain = argv[2] == std::string("plain");
  debts::both = argv[3] == std::string("both");
  weft::options o;
  o.workers = 2;
  o.compute_threads = 1;  // each has one more reply in the making
  // How long one is stopped is the test's matter.
  o.lost_after = std::chrono::seconds(0);
  o.stall_limit = o.call_deadline = o.shutdown_deadline = std::chrono::minutes(5);
  return argv[1] == std::string("tcp") ? weft::run<weft::tcp>(debts::main_, o)
                                       : weft::run<weft::unix_socket>(debts::main_, o);
}
