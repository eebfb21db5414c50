// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/link/transport_set.hpp>
#include <weft/engine/worker/runtime.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <rpc/cluster.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace transport_sets {

using namespace weft::testing;
using weft::inproc;
using weft::tcp;
using weft::unix_socket;
using weft::worker;
using weft::engine::runtime;
using weft::engine::transport_set;
using weft::engine::transports_of;

int add(int a, int b) { return a + b; }

/// Two workers with transports of their own, and the transport that each then names for the other.
std::pair<std::string, std::string> choose(transport_set first, transport_set second) {
  const test_part choosing("a choice of transports");
  std::vector<std::unique_ptr<runtime>> lives;
  lives.push_back(std::make_unique<runtime>(std::move(first), with_io_threads(1),
                                            weft::engine::service_makers()));
  lives.push_back(std::make_unique<runtime>(std::move(second), with_io_threads(0),
                                            weft::engine::service_makers()));
  weft::membership all;
  all.token = {3, 4};
  for (std::uint32_t r = 0; r < 2; ++r) {
    all.members.push_back({"w" + std::to_string(r), "", {1, r}, lives[r]->addresses()});
  }
  std::string chosen[2];
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < 2; ++r) {
    all.rank = r;
    lives[r]->join(all);
    threads.emplace_back([&, r] {
      const auto end = lives[r]->run([&, r](worker& me) -> asio::awaitable<void> {
        CHECK(co_await me.peer(1 - r).call<&add>(1, 2) == 3);
        chosen[r] = me.peer(1 - r).transport();
      });
      CHECK_FALSE(end);
    });
  }
  for (std::thread& t : threads) t.join();
  return {chosen[0], chosen[1]};
}

TEST_CASE("transport_set: the lower rank's first transport that reaches the other is taken") {
  const auto two = [] { return transports_of(unix_socket(), tcp()); };
  const auto owt = [] { return transports_of(tcp(), unix_socket()); };
  const auto one = [] { return transports_of(tcp()); };
  using pair = std::pair<std::string, std::string>;
  CHECK(choose(two(), two()) == pair{"unix", "unix"});
  CHECK(choose(owt(), two()) == pair{"tcp", "tcp"});
  CHECK(choose(two(), owt()) == pair{"unix", "unix"});
  CHECK(choose(one(), two()) == pair{"tcp", "tcp"});
  CHECK(choose(two(), one()) == pair{"tcp", "tcp"});
}

TEST_CASE("transport_set: a transport that does not reach the other is passed over") {
  using pair = std::pair<std::string, std::string>;
  // Each in a hub of its own: as far apart as two processes.
  CHECK(choose(transports_of(inproc(), tcp()), transports_of(inproc(), tcp())) ==
        pair{"tcp", "tcp"});
  const auto hub = std::make_shared<inproc::hub>();
  CHECK(choose(transports_of(inproc(hub), tcp()), transports_of(inproc(hub), tcp())) ==
        pair{"inproc", "inproc"});
}

TEST_CASE("transport_set: a worker's endpoints are tried in turn, and all are in the error") {
  // Two ends of which nobody listens, and one of a worker that does.
  asio::io_context io;
  std::vector<std::string> dead;
  for (int i = 0; i < 2; ++i) {
    tcp gone;
    dead.push_back(gone.listen(io));
    gone.close();
    io.poll();
    io.restart();
  }
  transport_set theirs = transports_of(tcp());
  const auto addresses = theirs.listen(io);
  weft::membership all;
  all.members.push_back({"w0", "", {1, 0}, {{"tcp", "127.0.0.1:1"}}});
  all.members.push_back({"w1", "", {1, 1}, {{"tcp", dead[0]}, {"tcp", dead[1]}}});
  transport_set mine = transports_of(tcp());
  const auto attempt = [&] {
    std::string outcome = "nothing came of it";
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
          const auto opened = co_await mine.connect(all, 1, io);
          outcome = "connected";
          opened->close();
        },
        [&](std::exception_ptr failed) {
          if (!failed) return;
          try {
            std::rethrow_exception(failed);
          } catch (const weft::rpc_error& e) {
            outcome = e.error().detail().text;
          }
        });
    io.restart();
    io.run_for(std::chrono::seconds(60));
    return outcome;
  };
  const std::string first = attempt();
  const auto why = ": Connection refused";
  CHECK(first == "cannot connect to " + dead[0] + why + "; to " + dead[1] + why);
  all.members.change(1).addresses.push_back({"tcp", addresses[0].endpoint});
  CHECK(attempt() == "connected");
  // It is not that member: the other two are still to be tried, and then it is given up.
  CHECK(mine.was_wrong(1));
  CHECK(mine.was_wrong(1));
  CHECK_FALSE(mine.was_wrong(1));
  mine.was_right(1);
  CHECK(mine.was_wrong(1));
  CHECK(attempt() == "connected");
  theirs.close();
}

TEST_CASE("transport_set: addresses come in the order of the transports") {
  asio::io_context io;
  transport_set net = transports_of(unix_socket(), tcp(), inproc());
  const auto addresses = net.listen(io);
  REQUIRE(addresses.size() == 3);
  CHECK(addresses[0].transport == "unix");
  CHECK(addresses[1].transport == "tcp");
  CHECK(addresses[2].transport == "inproc");
  for (const auto& a : addresses) CHECK_FALSE(a.endpoint.empty());
  net.close();
  io.poll();
}

}  // namespace transport_sets
