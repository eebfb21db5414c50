// SPDX-License-Identifier: BSL-1.0
// Workers on several hosts: by which addresses they reach each other, names that are found late or
// never, and a network that comes late.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <process/child.hpp>
#include <process/hosts.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace workers_on_hosts {

using namespace std::chrono_literals;
using weft::testing::child;
using weft::testing::hosts;

const std::string party = WEFT_TEST_PROGRAMS "/party";
const std::string port = "29511";  // of hosts of its own

using children = std::vector<std::unique_ptr<child>>;

/// Where each rank is, and what it calls the host of rank 0.
class party_on {
 public:
  party_on(hosts& net, std::string master, std::vector<std::string> where)
      : net_(net), master_(std::move(master)), where_(std::move(where)) {}

  [[nodiscard]] std::unique_ptr<child> start(std::size_t rank, const std::string& deed = "serve",
                                             int deadline = 60) const {
    int beside = 0;
    for (const std::string& host : where_) beside += host == where_[rank] ? 1 : 0;
    return std::make_unique<child>(
        net_.inside(where_[rank], {party, deed, std::to_string(deadline)}),
        std::vector<std::pair<std::string, std::string>>{
            {"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(where_.size())},
            {"LOCAL_WORLD_SIZE", std::to_string(beside)},
            {"MASTER_ADDR", master_},
            {"MASTER_PORT", port}});
  }
  [[nodiscard]] children start_all() const {
    children out;
    for (std::size_t r = 0; r < where_.size(); ++r) out.push_back(start(r));
    return out;
  }

 private:
  hosts& net_;
  std::string master_;
  std::vector<std::string> where_;
};

/// Rank 0 only serves: it is the others who reach it, and each other.
void check_well(const children& run) {
  for (std::size_t r = 0; r < run.size(); ++r) {
    const int status = run[r]->wait();
    INFO(run[r]->output());
    CHECK(status == 0);
    if (r > 0) CHECK(run[r]->said("rank " + std::to_string(r) + " of "));
  }
}

TEST_CASE("hosts: what is cut is silent, and heals") {
  if (hosts::skipped()) return;
  hosts net({"a", "b", "c"});
  const party_on three(net, net.address("a"), {"a", "b", "c"});
  check_well(three.start_all());
  net.cut("a", "b");
  {
    const children run = three.start_all();
    net.mend("a", "b");
    check_well(run);
  }
  net.cut("c");
  const auto lone = three.start(2, "serve", 3);
  CHECK(lone->wait() == 1);
  CHECK(lone->said("Connection timed out"));
}

TEST_CASE("hosts: rank 0's host maps its own name to a loopback address") {
  if (hosts::skipped()) return;
  hosts net({"a", "b"});
  net.etc_hosts("a", "127.0.0.1 localhost\n127.0.1.1 head\n");
  net.etc_hosts("b", net.address("a") + " head\n");
  check_well(party_on(net, "head", {"a", "a", "b", "b"}).start_all());
  check_well(party_on(net, "head", {"a", "b"}).start_all());
}

TEST_CASE("hosts: a name with addresses of two kinds, of which one host has but one") {
  if (hosts::skipped()) return;
  hosts net({"a", "b", "c"});
  for (const char* name : {"a", "b", "c"}) {
    net.etc_hosts(name, net.address6("a") + " head\n" + net.address("a") + " head\n");
  }
  net.ip("b", "-6 addr flush dev eth0");
  check_well(party_on(net, "head", {"a", "b", "c"}).start_all());
  check_well(party_on(net, "[" + net.address6("a") + "]", {"a", "c"}).start_all());
}

TEST_CASE("hosts: of several addresses of rank 0's host the first leads nowhere from another one") {
  if (hosts::skipped()) return;
  hosts net({"a", "b"});
  net.ip("a", std::string("addr add ") + hosts::nobody + "/32 dev lo");
  for (const char* name : {"a", "b"}) {
    net.etc_hosts(name, std::string(hosts::nobody) + " head\n" + net.address("a") + " head\n");
  }
  check_well(party_on(net, "head", {"a", "b"}).start_all());
}

TEST_CASE("hosts: the name of rank 0's host, or the network, is there a little later") {
  if (hosts::skipped()) return;
  hosts net({"a", "b"});
  net.etc_hosts("a", net.address("a") + " head\n");
  net.etc_resolv("b", "nameserver 127.0.0.1\n");  // where nobody is: no such name yet
  {
    const party_on two(net, "head", {"a", "b"});
    const children run = two.start_all();
    std::this_thread::sleep_for(1500ms);  // it has begun; should it not have, the test is weaker
    net.etc_hosts("b", net.address("a") + " head\n");
    check_well(run);
  }
  net.unplug("b");
  const party_on two(net, net.address("a"), {"a", "b"});
  const children run = two.start_all();
  std::this_thread::sleep_for(1500ms);
  net.plug("b");
  check_well(run);
}

/// What it measured itself: within the deadline, two seconds, and the time of a slow machine.
void check_took(const child& c, int most) { CHECK(c.number_after("the run took ") < most); }

TEST_CASE("hosts: a name that never comes, and no way to an address, are said with the variable") {
  if (hosts::skipped()) return;
  hosts net({"a"});
  net.etc_resolv("a", "nameserver 127.0.0.1\n");
  const auto nowhere = party_on(net, "head", {"b", "a"}).start(1, "serve", 2);
  net.ip("a", "route del default");
  const auto no_way = party_on(net, hosts::nobody, {"b", "a"}).start(1, "serve", 2);
  for (const auto& c : {nowhere.get(), no_way.get()}) {
    CHECK(c->wait() == 1);
    INFO(c->output());
    CHECK(c->said("worker1: rendezvous failed: after 2000 ms MASTER_ADDR='"));
  }
  CHECK(nowhere->said("MASTER_ADDR='head' is not found by this host's name service"));
  CHECK(no_way->said("MASTER_ADDR='10.231.250.2' cannot be reached from this host: Network is "
                     "unreachable"));
}

TEST_CASE("hosts: a name service that does not answer holds up neither a run nor a loop") {
  if (hosts::skipped()) return;
  hosts net({"a"});
  net.etc_resolv("a",
                 std::string("nameserver ") + hosts::nobody + "\noptions timeout:30 attempts:5\n");
  const party_on two(net, "head", {"b", "a"});
  for (const char* deed : {"serve", "join"}) {
    CAPTURE(deed);
    const auto c = two.start(1, deed, 2);
    CHECK(c->wait() == 1);
    INFO(c->output());
    CHECK(c->said("this host's name service does not answer: the look-up of MASTER_ADDR='head' "
                  "has not ended"));
    check_took(*c, 20'000);  // of 150 s
    if (deed != std::string("join")) continue;
    CHECK(c->number_after("ticks ") > 20);  // of 400
  }
}

TEST_CASE("hosts: a name service that does not answer keeps nobody away who has an address") {
  if (hosts::skipped()) return;
  hosts net({"a", "b"});
  for (const char* name : {"a", "b"}) {  // libtorch asks who has connected
    net.etc_resolv(name,
                   std::string("nameserver ") + hosts::nobody + "\noptions timeout:2 attempts:1\n");
  }
  check_well(party_on(net, net.address("a"), {"a", "b"}).start_all());
}

TEST_CASE("hosts: MASTER_ADDR that is another host than rank 0's is said at once, in a sentence") {
  if (hosts::skipped()) return;
  hosts net({"a", "b"});
  net.etc_hosts("a", net.address("b") + " other\n");
  const std::string both[] = {net.address("b"), "other"};
  for (const std::string& master : both) {
    const auto c = party_on(net, master, {"a", "b"}).start(0);
    CHECK(c->wait() == 1);
    INFO(c->output());
    CHECK(c->said("MASTER_ADDR='" + master + "' is "));
    CHECK(c->said("no address of this host, and rank 0 holds the store: it must name rank 0's "
                  "host"));
    CHECK_FALSE(c->said("c10d"));
    check_took(*c, 30'000);  // of 60 s
  }
}

TEST_CASE("hosts: who cannot reach the store says where it was looked for") {
  if (hosts::skipped()) return;
  hosts net({"a"});
  net.etc_hosts("a", "127.0.1.1 head\n");  // of rank 0's host this should not be
  const auto c = party_on(net, "head", {"b", "a"}).start(1, "serve", 2);
  CHECK(c->wait() == 1);
  INFO(c->output());
  CHECK(c->said("rank 1 cannot reach the store at head:" + port +
                ", which rank 0 holds, within 2000 ms: Connection refused (MASTER_ADDR='head' is "
                "127.0.1.1 here)"));
}

}  // namespace workers_on_hosts
