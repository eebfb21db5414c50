// SPDX-License-Identifier: BSL-1.0
// What the tests of broken links start: `cut <policy> <posts> <pause in µs>`, in three processes.
// Rank 1 posts so many times to rank 2, or until a post fails. Each says what it has counted.
#include <weft/run.hpp>
#include <weft/transport/tcp.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <string>
#include <utility>

#include <unistd.h>

namespace cut {

using namespace std::chrono_literals;
using weft::worker;

int posts = 0;
std::chrono::microseconds pause_between{0};
std::atomic<int> ran{0};

// One write per line, so that lines of several processes do not mix.
void say(const std::string& text) { std::cout << text + "\n" << std::flush; }

void take(const std::string& bytes) { ran += bytes.size() == 200'000 ? 1 : 0; }
int answer() { return 42; }

asio::awaitable<void> main_(worker& me) {
  say("pid " + std::to_string(::getpid()) + " is rank " + std::to_string(me.rank()));
  if (me.rank() != 1) co_return;
  const weft::peer to = me.peer(2);
  co_await to.call<&answer>();
  int accepted = 0;
  try {
    while (accepted < posts) {
      co_await weft::sleep_for(pause_between);
      try {
        to.post<&take>(std::string(200'000, 'x'));
        if (++accepted == 20) say("20 are posted");
      } catch (const weft::rpc_error& e) {
        if (e.error() != weft::errc::too_many_calls) throw;
      }
    }
  } catch (const weft::rpc_error& e) {
    say(std::string("a post failed: ") + e.what());
  }
  say("accepted " + std::to_string(accepted));
}

}  // namespace cut

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  cut::posts = std::stoi(argv[2]);
  cut::pause_between = std::chrono::microseconds(std::stoi(argv[3]));
  weft::options o{.workers = 3};
  o.lost_after = std::chrono::seconds(2);
  if (std::string(argv[1]) == "go_on") o.on_loss = weft::loss_policy::go_on();
  const int status = weft::run<weft::tcp>(cut::main_, std::move(o));
  if (cut::ran > 0) cut::say("ran " + std::to_string(cut::ran));
  return status;
}
