// SPDX-License-Identifier: BSL-1.0
#include <weft/core/system_random.hpp>
#include <weft/engine/rendezvous/rendezvous.hpp>

#include <doctest/doctest.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <core/temporary_folder.hpp>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace meetings {

using namespace std::chrono_literals;
using weft::errc;
using weft::member;
using weft::membership;
using weft::engine::store_ptr;

member called(std::string name) {
  member m;
  m.name = std::move(name);
  m.role = "trainer";
  m.addresses = {{"tcp", "127.0.0.1:1"}, {"unix", "unix:x:y"}};
  return m;
}

/// What each of `names` gets; `stores` one per rank, or one for all.
std::vector<std::variant<membership, weft::error>> meet(const std::vector<store_ptr>& stores,
                                                        const std::vector<std::string>& names,
                                                        std::uint32_t size,
                                                        weft::duration deadline = 60s) {
  std::vector<std::future<std::variant<membership, weft::error>>> all;
  for (std::uint32_t r = 0; r < names.size(); ++r) {
    all.push_back(std::async(std::launch::async, [&, r]() -> std::variant<membership, weft::error> {
      weft::random_source random = weft::system_random();
      try {
        return weft::engine::rendezvous(*stores[stores.size() == 1 ? 0 : r], r, size,
                                        called(names[r]), deadline, random);
      } catch (const weft::rpc_error& e) {
        return e.error();
      }
    }));
  }
  std::vector<std::variant<membership, weft::error>> out;
  for (auto& f : all) out.push_back(f.get());
  return out;
}

void check_all_agree(const std::vector<std::variant<membership, weft::error>>& results) {
  for (std::uint32_t r = 0; r < results.size(); ++r) {
    REQUIRE(std::holds_alternative<membership>(results[r]));
    const auto& mine = std::get<membership>(results[r]);
    const auto& first = std::get<membership>(results[0]);
    CHECK(mine.rank == r);
    CHECK(mine.token == first.token);
    CHECK(mine.token != weft::id128{});
    REQUIRE(mine.size() == results.size());
    for (std::uint32_t other = 0; other < mine.size(); ++other) {
      const member& m = mine.members[other];
      CHECK(m.name == first.members[other].name);
      CHECK(m.role == "trainer");
      CHECK(m.incarnation == first.members[other].incarnation);
      CHECK(m.incarnation != weft::id128{});
      REQUIRE(m.addresses.size() == 2);
      CHECK(m.addresses[0].transport == "tcp");
      CHECK(m.addresses[1].endpoint == "unix:x:y");
      for (std::uint32_t before = 0; before < other; ++before) {
        CHECK(m.incarnation != mine.members[before].incarnation);
      }
    }
  }
}

TEST_CASE("rendezvous: everybody learns the same of everybody, in memory") {
  check_all_agree(meet({c10::make_intrusive<c10d::HashStore>()}, {"a", "b", "c", "d"}, 4));
}

TEST_CASE("rendezvous: through a file") {
  const weft::testing::temporary_folder place;
  const auto path = place.root / "store";
  std::vector<store_ptr> stores;
  for (int i = 0; i < 3; ++i) {
    stores.push_back(c10::make_intrusive<c10d::FileStore>(path.string(), 3));
  }
  check_all_agree(meet(stores, {"a", "b", "c"}, 3));
}

TEST_CASE("rendezvous: through a TCP store") {
  c10d::TCPStoreOptions server;
  server.port = 0;
  server.isServer = true;
  server.waitWorkers = false;
  auto first = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", server);
  c10d::TCPStoreOptions client;
  client.port = first->getPort();
  client.waitWorkers = false;
  std::vector<store_ptr> stores{first};
  stores.push_back(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", client));
  check_all_agree(meet(stores, {"a", "b"}, 2));
}

TEST_CASE("rendezvous: a missing worker is named at the deadline") {
  const auto results = meet({c10::make_intrusive<c10d::HashStore>()}, {"a", "b"}, 4, 300ms);
  for (const auto& r : results) {
    REQUIRE(std::holds_alternative<weft::error>(r));
    const auto& e = std::get<weft::error>(r);
    CHECK(e == errc::rendezvous_failed);
    CHECK(e.message().find("missing: 2, 3") != std::string::npos);
    CHECK(e.message().find("300 ms") != std::string::npos);
  }
}

TEST_CASE("rendezvous: two workers of one name are told apart by rank, and refused") {
  const auto results = meet({c10::make_intrusive<c10d::HashStore>()}, {"a", "twin", "twin"}, 3);
  for (const auto& r : results) {
    REQUIRE(std::holds_alternative<weft::error>(r));
    const auto& e = std::get<weft::error>(r);
    CHECK(e == errc::duplicate_name);
    CHECK(e.message().find("ranks 1 and 2") != std::string::npos);
    CHECK(e.message().find("'twin'") != std::string::npos);
  }
}

TEST_CASE("rendezvous: nonsense in the store is a typed error") {
  for (const char* text : {"", "{", "[]", R"({"name":1})",
                           R"({"name":"x","role":"","incarnation":"zz","addresses":[]})"}) {
    CAPTURE(text);
    auto store = c10::make_intrusive<c10d::HashStore>();
    store->set("worker/1", weft::engine::to_store(text));
    const auto results = meet({store}, {"a"}, 2, 5s);
    REQUIRE(std::holds_alternative<weft::error>(results[0]));
    CHECK(std::get<weft::error>(results[0]) == errc::rendezvous_failed);
  }
  auto store = c10::make_intrusive<c10d::HashStore>();
  const std::string a = weft::engine::describe(called("a"));
  store->set("token", weft::engine::to_store("not a token"));
  store->set("worker/0", weft::engine::to_store(a));
  store->set("verdict", weft::engine::to_store(nlohmann::json{{"members", {a, a}}}.dump()));
  weft::random_source random = weft::system_random();
  CHECK_THROWS_AS(
      static_cast<void>(weft::engine::rendezvous(*store, 1, 2, called("b"), 5s, random)),
      weft::rpc_error);
}

TEST_CASE("rendezvous: the token is gone once all have joined, and not before") {
  auto store = c10::make_intrusive<c10d::HashStore>();
  auto first = std::async(std::launch::async, [&] { return meet({store}, {"a"}, 2); });
  const auto until = std::chrono::steady_clock::now() + 60s;
  while (!store->check({"worker/0"}) && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  CHECK(store->check({"token"}));
  weft::random_source random = weft::system_random();
  const membership second = weft::engine::rendezvous(*store, 1, 2, called("b"), 60s, random);
  const auto results = first.get();
  REQUIRE(std::holds_alternative<membership>(results[0]));
  CHECK(std::get<membership>(results[0]).token == second.token);
  CHECK_FALSE(store->check({"token"}));
}

TEST_CASE("rendezvous: a rank that is taken is refused, and does not disturb those who meet") {
  auto store = c10::make_intrusive<c10d::HashStore>();
  store->add("seat/1", 1);
  weft::random_source random = weft::system_random();
  try {
    static_cast<void>(weft::engine::rendezvous(*store, 1, 2, called("b"), 5s, random));
    FAIL("nothing was thrown");
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == errc::rendezvous_failed);
    CHECK(std::string(e.what()).find("another process has registered as rank 1") !=
          std::string::npos);
  }
  CHECK_FALSE(store->check({"worker/1"}));
}

TEST_CASE("rendezvous: different sizes are noticed") {
  auto store = c10::make_intrusive<c10d::HashStore>();
  const std::string a = weft::engine::describe(called("a"));
  store->set("worker/0", weft::engine::to_store(a));
  store->set("verdict", weft::engine::to_store(nlohmann::json{{"members", {a}}}.dump()));
  weft::random_source random = weft::system_random();
  CHECK_THROWS_WITH(
      static_cast<void>(weft::engine::rendezvous(*store, 1, 2, called("b"), 5s, random)),
      doctest::Contains("WORLD_SIZE must be the same"));
}

TEST_CASE("open_store: nobody behind MASTER_ADDR is a rendezvous error that says where") {
  std::uint16_t port = 0;
  {
    c10d::TCPStoreOptions o;
    o.isServer = true;
    o.waitWorkers = false;
    port = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", o)->getPort();
  }
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  weft::placement where;
  where.rank = 1;
  where.size = 2;
  try {
    static_cast<void>(weft::engine::open_store(where, weft::engine::countdown(500ms)));
    FAIL("nothing was thrown");
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == errc::rendezvous_failed);
    CHECK(std::string(e.what()).find("127.0.0.1") != std::string::npos);
    CHECK(std::string(e.what()).find("refused") != std::string::npos);
  }
  ::setenv("MASTER_PORT", "no port", 1);
  CHECK_THROWS_AS(
      static_cast<void>(weft::engine::open_store(where, weft::engine::countdown(500ms))),
      weft::rpc_error);
  ::unsetenv("MASTER_ADDR");
  ::unsetenv("MASTER_PORT");
}

TEST_CASE("open_store: a name that nobody knows is said to be one") {
  ::setenv("MASTER_ADDR", "no.such.host.invalid", 1);
  ::setenv("MASTER_PORT", "29500", 1);
  weft::placement where;
  where.rank = 1;
  where.size = 2;
  try {
    static_cast<void>(weft::engine::open_store(where, weft::engine::countdown(300ms)));
    FAIL("nothing was thrown");
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == errc::rendezvous_failed);
    CHECK(std::string(e.what()).find("ost not found") != std::string::npos);
    CHECK(std::string(e.what()).find("refused") == std::string::npos);
  }
  ::unsetenv("MASTER_ADDR");
  ::unsetenv("MASTER_PORT");
}

/// Says for a while that not all keys are there, to whoever asks for several.
class late_store final : public c10d::HashStore {
 public:
  bool check(const std::vector<std::string>& keys) override {
    return keys.size() == 1 && c10d::HashStore::check(keys);
  }
};

TEST_CASE("rendezvous: one that comes between the last look and the count has come") {
  check_all_agree(meet({c10::make_intrusive<late_store>()}, {"a", "b"}, 2, 2s));
}

TEST_CASE("open_store: several hosts without MASTER_ADDR are told what is missing") {
  weft::placement where;
  where.size = 4;
  where.on_this_host = 2;
  try {
    static_cast<void>(weft::engine::open_store(where, weft::engine::countdown(500ms)));
    FAIL("nothing was thrown");
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == errc::invalid_argument);
    CHECK(std::string(e.what()).find("MASTER_ADDR") != std::string::npos);
  }
}

}  // namespace meetings
