// SPDX-License-Identifier: BSL-1.0
// Callbacks, and one object per worker.
#include "pure.hpp"
#include <weft/core/sleep_for.hpp>
#include <weft/rref/callback.hpp>
#include <weft/rref/exclusive.hpp>
#include <weft/rref/sharded.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rref_callback {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::callback;
using weft::errc;
using weft::rref;
using weft::sharded;
using weft::worker;

asio::awaitable<int> train(int steps, callback<void(int)> told) {
  for (int i = 0; i < steps; ++i) co_await told(i);
  co_return steps;
}
void train_and_post(int steps, callback<void(int)> told) {
  for (int i = 0; i < steps; ++i) told.post(i);
}
asio::awaitable<std::string> ask(callback<std::string(std::string, int)> question) {
  auto later = question.start("twice", 2);
  co_return co_await question("once", 1) + ", " + co_await std::move(later);
}
asio::awaitable<std::string> ask_through(worker& me, std::uint32_t via,
                                         callback<std::string(std::string, int)> question) {
  co_return co_await me.peer(via).call<&ask>(std::move(question));
}
struct held_here {
  callback<void(int)> kept;
  asio::awaitable<void> keep(callback<void(int)> c) {
    kept = std::move(c);
    co_return;
  }
  asio::awaitable<void> use(int i) { co_await kept(i); }
};

/// Counts those of its kind that live.
struct counted {
  explicit counted(std::atomic<int>& all) : all_(&all) { ++*all_; }
  counted(const counted& c) : all_(c.all_) { ++*all_; }
  ~counted() { --*all_; }
  std::atomic<int>* all_;
};

TEST_CASE("callback: a lambda is called from elsewhere, on its maker's thread") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    std::vector<int> steps;  // no lock: it is used on this worker's thread only
    const callback<void(int)> told(me, [&](int step) {
      CHECK(me.on_thread());
      steps.push_back(step);
    });
    CHECK(co_await me.peer(1).call<&train>(3, told) == 3);
    CHECK(steps == std::vector<int>{0, 1, 2});
    co_await me.peer(1).call<&train_and_post>(2, told);
    CHECK(co_await eventually([&] { return steps.size() == 5; }));
    CHECK(co_await me.peer(0).call<&train>(1, told) == 1);
    CHECK(steps.back() == 0);
  });
}

TEST_CASE("callback: one that waits, with a result, through a third worker") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const callback<std::string(std::string, int)> question(
        me, [](const std::string& what, int times) -> asio::awaitable<std::string> {
          co_await weft::sleep_for(1ms);
          co_return what + std::to_string(times);
        });
    CHECK(co_await me.peer(1).call<&ask_through>(2, question) == "once1, twice2");
  });
}

TEST_CASE("callback: what it throws, and one that is empty, are errors of its caller") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const callback<void(int)> fails(me, [](int) { throw std::runtime_error("not today"); });
    const auto e = co_await me.peer(1).call<&train>(1, fails, weft::as_expected);
    REQUIRE_FALSE(e);
    CHECK(e.error().message().find("not today") != std::string::npos);
    CHECK_FALSE(callback<void(int)>());
    const auto empty =
        co_await me.peer(1).call<&train>(1, callback<void(int)>(), weft::as_expected);
    REQUIRE_FALSE(empty);
    CHECK(empty.error().message().find("empty") != std::string::npos);
    const auto here = co_await fails(3, weft::as_expected, weft::within(5s));
    REQUIRE_FALSE(here);
    CHECK(here.error() == errc::remote_exception);
  });
}

TEST_CASE("callback: the function lives until the last copy anywhere is gone") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    std::atomic<int> living{0};
    auto holder = me.peer(1).make<held_here>();
    {
      const callback<void(int)> told(me,
                                     [c = counted(living), p = std::make_unique<int>(1)](int) {});
      CHECK(living == 1);
      co_await holder.call<&held_here::keep>(told);
    }
    co_await holder.call<&held_here::use>(1);
    CHECK(living == 1);
    co_await holder.call<&held_here::keep>(callback<void(int)>());
    CHECK(co_await eventually([&] { return living == 0; }));
  });
}

// ── one object per worker ──

std::vector<weft::peer> everybody(worker& me) {
  std::vector<weft::peer> out;
  for (std::uint32_t r = 0; r < me.world_size(); ++r) out.push_back(me.peer(r));
  return out;
}

class shard {
 public:
  shard(int first, int step) : value_(first), step_(step) {
    if (step < 0) throw std::runtime_error("a step back");
  }
  asio::awaitable<int> next(worker& me) {
    value_ += step_;
    co_return value_ + static_cast<int>(100 * me.rank());
  }
  asio::awaitable<void> breaks_on_one(worker& me) {
    if (me.rank() == 1) throw std::runtime_error("one of them");
    co_return;
  }
  int value() const { return value_; }

 private:
  int value_, step_;
};
asio::awaitable<int> look_at_mine(sharded<shard> s) { co_return s.local()->value(); }

TEST_CASE("sharded: one on each, by rank, by place, and the receiver's own") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const std::vector<weft::peer> peers{me.peer(2), me.peer(1)};
    const sharded<shard> s = co_await weft::make_sharded<shard>(peers, 5, 2);
    CHECK(s.size() == 2);
    CHECK(s[0].owner().rank() == 2);
    CHECK(s.on(1).owner().rank() == 1);
    CHECK_THROWS_AS(static_cast<void>(s.on(0)), weft::rpc_error);
    CHECK_THROWS_AS(static_cast<void>(s[2]), weft::rpc_error);
    CHECK_THROWS_AS(static_cast<void>(s.local()), weft::rpc_error);
    CHECK(co_await s.on(1).call<&shard::next>() == 107);
    CHECK(co_await me.peer(1).call<&look_at_mine>(s) == 7);
    CHECK(co_await me.peer(2).call<&look_at_mine>(s) == 5);
    CHECK(co_await s.call_all<&shard::next>() == std::vector<int>{207, 109});
  });
}

asio::awaitable<int> ask_mine(weft::worker& me, sharded<weft::exclusive<shard>> s) {
  co_return co_await s.on(me.rank()).call<&shard::next>();
}

TEST_CASE("sharded: objects that serve one call at a time") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const auto s = co_await weft::make_sharded<weft::exclusive<shard>>(everybody(me), 5, 2);
    CHECK(co_await s.call_all<&shard::next>() == std::vector<int>{7, 107});
    CHECK(co_await me.peer(1).call<&ask_mine>(s) == 109);
    bool refused = false;
    try {
      static_cast<void>(co_await weft::make_sharded<weft::exclusive<shard>>(everybody(me), 0, -1));
    } catch (const weft::rpc_error& e) {
      refused = e.error().message().find("a step back") != std::string::npos;
    }
    CHECK(refused);
  });
}

TEST_CASE("sharded: an error of one is its own, or cancels all") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const sharded<shard> s = co_await weft::make_sharded<shard>(everybody(me), 0, 1);
    const auto each =
        co_await s.call_all<&shard::breaks_on_one>(weft::within(20s), weft::as_expected);
    REQUIRE(each.size() == 3);
    CHECK(each[0]);
    CHECK_FALSE(each[1]);
    CHECK(each[2]);
    bool thrown = false;
    try {
      co_await s.call_all<&shard::breaks_on_one>();
    } catch (const weft::rpc_error& e) {
      thrown = e.error().message().find("one of them") != std::string::npos;
    }
    CHECK(thrown);
    bool refused = false;
    try {
      static_cast<void>(co_await weft::make_sharded<shard>(everybody(me), 0, -1));
    } catch (const weft::rpc_error& e) {
      refused = e.error().message().find("a step back") != std::string::npos;
    }
    CHECK(refused);
  });
}

// ── bases, posts, objects that are there already ──

struct named {
  std::string name;
  explicit named(std::string n) : name(std::move(n)) {}
  std::string get_name() { return name; }
};
struct valued {
  std::atomic<int> value = 3;  // set on the worker's thread, read in its pool
  int get_value() { return value; }
};
struct middle : valued, named {
  explicit middle(std::string n) : named(std::move(n)) {}
};
struct leaf : middle {
  using middle::middle;
  asio::awaitable<void> set(int v) {
    value = v;
    co_return;
  }
};
asio::awaitable<std::string> name_of_it(rref<named> r) {
  co_return co_await r.call<&named::get_name>();
}
struct stranger {};
struct low {
  int meters = 0;
  int height() { return meters; }
};
struct other_base {
  int unused = 1;
};
struct mid : other_base, low {};
struct tall : mid {
  explicit tall(int m) { meters = m; }
};

TEST_CASE(
    "rref: a derived object is used as its bases, at once, over several steps, and elsewhere") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    rref<leaf> l = me.peer(1).make<leaf>("deep");
    const rref<tall> only_stepwise = me.peer(1).make<tall>(4);
    const rref<low> ground = rref<mid>(only_stepwise);
    CHECK(co_await ground.call<&low::height>() == 4);
    const rref<named> direct = l;
    CHECK(direct.id() == l.id());
    CHECK(co_await direct.call<&named::get_name>() == "deep");
    const rref<named> stepwise = rref<middle>(l);
    CHECK(co_await me.peer(1).call<&name_of_it>(stepwise) == "deep");
    CHECK(co_await me.peer(0).call<&name_of_it>(l) == "deep");
    CHECK(co_await l.call<&valued::get_value>() == 3);

    const rref<leaf> mine = me.make<leaf>("here");
    co_await mine.call<&leaf::set>(9);
    const rref<valued> base = mine;
    CHECK(base.local()->value == 9);
    CHECK(static_cast<valued*>(mine.local().get()) == base.local().get());
    static_assert(!std::is_convertible_v<rref<valued>, rref<leaf>>);
    static_assert(!std::is_convertible_v<rref<leaf>, rref<stranger>>);
  });
}

std::string described(const leaf& l, const std::string& with) {
  return l.name + with + std::to_string(l.value);
}
asio::awaitable<int> value_there(worker& me, const leaf& l, int more) {
  co_return l.value + more + static_cast<int>(100 * me.rank());
}
int length(const std::string& text) { return static_cast<int>(text.size()); }

TEST_CASE("rref: functions may look at the object, a const T&, which on a peer is an argument") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const rref<leaf> l = me.peer(1).make<leaf>("it");
    CHECK(co_await l.call<&described>(" is ") == "it is 3");
    CHECK(co_await l.start<&value_there>(4) == 107);
    const rref<std::string> text = l.remote<&described>("...");
    CHECK(co_await text.call<&length>() == 6);
    CHECK(co_await text.remote<&length>().to_here() == 6);
    CHECK(co_await me.peer(1).call<&length>("four") == 4);
    CHECK(weft::function<&length>::id() != weft::detail::looking<&length>::id());
  });
}

TEST_CASE("rref: posts, in hash tables and sorted") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    rref<leaf> a = me.peer(1).make<leaf>("a");
    rref<leaf> b = me.make<leaf>("b");
    a.post<&leaf::set>(11);
    int seen = 0;
    for (int i = 0; i < 2000 && seen != 11; ++i) {
      seen = co_await a.call<&valued::get_value>();
      if (seen != 11) co_await weft::sleep_for(5ms);
    }
    CHECK(seen == 11);
    CHECK_THROWS_AS(rref<leaf>().post<&leaf::set>(1), weft::rpc_error);
    std::unordered_map<rref<leaf>, int> by_hash{{a, 1}, {b, 2}};
    std::map<rref<leaf>, int> sorted{{a, 1}, {b, 2}};
    const rref<leaf> copy = a;
    CHECK(by_hash.at(copy) == 1);
    CHECK(sorted.at(copy) == 1);
    CHECK(sorted.size() == 2);
  });
}

TEST_CASE("share: an object that is there already") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    auto object = std::make_shared<leaf>("own");
    {
      const rref<leaf> r = me.share(object);
      CHECK(r.local() == object);
      CHECK(co_await me.peer(1).call<&name_of_it>(r) == "own");
      object->value = 21;
      CHECK(co_await r.call<&valued::get_value>() == 21);
    }
    CHECK(co_await eventually([&] { return object.use_count() == 1; }));
    CHECK_THROWS_AS(static_cast<void>(me.share(std::shared_ptr<leaf>())), weft::rpc_error);
  });
}

}  // namespace rref_callback
