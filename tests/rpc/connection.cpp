// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/connection.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rpc/runtime.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <memory>
#include <rpc/cluster.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace networks {

using namespace weft::testing;
using weft::inproc;
using weft::network_of;
using weft::tcp;
using weft::unix_socket;
using weft::worker;

int add(int a, int b) { return a + b; }

/// Two workers with networks of their own, and the transport that each then names for the other.
std::pair<std::string, std::string> choose(std::unique_ptr<weft::network> first,
                                           std::unique_ptr<weft::network> second) {
  const test_part choosing("a choice of transports");
  std::vector<std::unique_ptr<weft::runtime<>>> lives;
  lives.push_back(std::make_unique<weft::runtime<>>(std::move(first), with_io_threads(1)));
  lives.push_back(std::make_unique<weft::runtime<>>(std::move(second), with_io_threads(0)));
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

TEST_CASE("network: the lower rank's first transport that reaches the other is taken") {
  using two = network_of<unix_socket, tcp>;
  using owt = network_of<tcp, unix_socket>;
  using pair = std::pair<std::string, std::string>;
  CHECK(choose(std::make_unique<two>(), std::make_unique<two>()) == pair{"unix", "unix"});
  CHECK(choose(std::make_unique<owt>(), std::make_unique<two>()) == pair{"tcp", "tcp"});
  CHECK(choose(std::make_unique<two>(), std::make_unique<owt>()) == pair{"unix", "unix"});
  CHECK(choose(std::make_unique<network_of<tcp>>(), std::make_unique<two>()) == pair{"tcp", "tcp"});
  CHECK(choose(std::make_unique<two>(), std::make_unique<network_of<tcp>>()) == pair{"tcp", "tcp"});
}

TEST_CASE("network: a transport that does not reach the other is passed over") {
  using net = network_of<inproc, tcp>;
  using pair = std::pair<std::string, std::string>;
  // Each in a hub of its own: as far apart as two processes.
  CHECK(choose(std::make_unique<net>(inproc(), tcp()), std::make_unique<net>(inproc(), tcp())) ==
        pair{"tcp", "tcp"});
  const auto hub = std::make_shared<inproc::hub>();
  CHECK(choose(std::make_unique<net>(inproc(hub), tcp()),
               std::make_unique<net>(inproc(hub), tcp())) == pair{"inproc", "inproc"});
}

TEST_CASE("network: addresses come in the order of the transports") {
  asio::io_context io;
  network_of<unix_socket, tcp, inproc> net;
  const auto addresses = net.listen(io);
  REQUIRE(addresses.size() == 3);
  CHECK(addresses[0].transport == "unix");
  CHECK(addresses[1].transport == "tcp");
  CHECK(addresses[2].transport == "inproc");
  for (const auto& a : addresses) CHECK_FALSE(a.endpoint.empty());
  net.close();
  io.poll();
}

}  // namespace networks
