// SPDX-License-Identifier: BSL-1.0
// A worker whose thread is not to be had for 20 s: `busy <tcp|unix> <rank> <start|handler>
// <io_threads>`, as three workers with the limits that users have. Each then says what it got.
#include <weft/run.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <chrono>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

namespace busy {

using namespace std::chrono_literals;
using weft::within;
using weft::worker;

std::uint32_t who = 0;
std::string when;

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }
int add(int a, int b) { return a + b; }
/// Longer than silence is borne.
void compute() {
  if (weft::options().lost_after > 10s) throw std::runtime_error("it is too short, then");
  say("computes");
  std::this_thread::sleep_for(20s);
  say("has computed");
}
asio::awaitable<void> compute_here() {
  compute();
  co_return;
}

asio::awaitable<void> main_(worker& me) {
  if (me.rank() == who && when == "start") compute();
  const auto next = (who + 1) % me.world_size();
  weft::future<void> computing;
  if (me.rank() == next && when == "handler") {
    static_cast<void>(co_await me.peer(who).call<&add>(1, 2));
    computing = me.peer(who).start<&compute_here>(within(60s));
  }
  int sum = 0;
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    sum += co_await me.peer(r).call<&add>(static_cast<int>(r), 1, within(60s));
  }
  say("rank " + std::to_string(me.rank()) + " got " + std::to_string(sum));
  if (computing.valid()) co_await std::move(computing);
}

}  // namespace busy

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  busy::who = static_cast<std::uint32_t>(std::stoul(argv[2]));
  busy::when = argv[3];
  weft::options o;
  o.workers = 3;
  o.io_threads = static_cast<unsigned>(std::stoul(argv[4]));
  if (argv[1] == std::string("tcp")) return weft::run<weft::tcp>(busy::main_, o);
  return weft::run<weft::unix_socket>(busy::main_, o);
}
