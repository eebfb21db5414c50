// SPDX-License-Identifier: BSL-1.0
// What the tests of broadcasts start: `spread <when> <rank>`: eight workers, of which that one
// kills itself before, between or behind its forwards. Says what the others have.
#include <weft/rref/group_calls.hpp>
#include <weft/run.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <ATen/ops/full.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>
#include <type_traits>

#include <signal.h>

namespace broadcast_program {

using namespace std::chrono_literals;
using weft::worker;

std::string when;
std::uint32_t victim = 0;
std::atomic<std::uint32_t> here{0};
std::atomic<int> encoded{0};
std::atomic<int> runs{0};

void die() { ::kill(::getpid(), SIGKILL); }
bool is_time(const char* deed) { return when == deed && here == victim; }

/// Kills its worker as it comes, or as it goes on.
struct letter {
  at::Tensor text;
};
void weft_encode(weft::writer& w, const letter& x) {
  if (is_time("between") && ++encoded == 2) {
    std::this_thread::sleep_for(100ms);  // the first one is written by the helper meanwhile
    die();
  }
  weft::codec<at::Tensor>::encode(w, x.text);
}
letter weft_decode(weft::reader& r, std::type_identity<letter>) {
  letter out{weft::codec<at::Tensor>::decode(r)};
  if (is_time("before")) die();
  return out;
}
double read(worker&, const letter& x) {
  if (is_time("behind")) die();
  ++runs;
  return x.text.sum().item<double>();
}
int runs_here() { return runs; }
void be(worker& me) { here = me.rank(); }

asio::awaitable<void> main_(worker& me) {
  if (me.rank() != 0) co_return;
  const auto all = me.peers("");
  co_await weft::call_all<&be>(all);
  const auto got = co_await weft::broadcast<&read>(all, letter{at::full({1 << 20}, 2.0F)},
                                                   weft::within(30s), weft::as_expected);
  for (const weft::peer& p : all) {
    const auto& one = got[p.rank()];
    std::string line = std::to_string(p.rank()) + ": ";
    if (one) {
      line += std::to_string(*one) + ", ran " + std::to_string(co_await p.call<&runs_here>());
    } else {
      line += one.error() == weft::errc::peer_died ? "died" : one.error().message();
    }
    std::cout << line + "\n" << std::flush;
  }
}

}  // namespace broadcast_program

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  broadcast_program::when = argv[1];
  broadcast_program::victim = static_cast<std::uint32_t>(std::stoul(argv[2]));
  return weft::run<weft::unix_socket, weft::tcp>(
      broadcast_program::main_,
      {.workers = 8, .compute_threads = 1, .on_loss = weft::loss_policy::go_on()});
}
