// SPDX-License-Identifier: BSL-1.0
// Results that are references: what is called on them goes on to what they refer to.
#include "pure.hpp"
#include <weft/core/gather.hpp>
#include <weft/core/log.hpp>
#include <weft/core/sleep_for.hpp>
#include <weft/rpc/loss_policy.hpp>
#include <weft/rref/exclusive.hpp>
#include <weft/rref/section.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rref_leads_on {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::call_progress;
using weft::errc;
using weft::immediate;
using weft::rpc_error;
using weft::rref;
using weft::worker;

std::atomic<int> alive{0};
std::atomic<int> waiting_there{0};

/// Says who served it, and keeps what it was told in order.
struct notes {
  using immediate_constructor = notes;
  static constexpr std::string_view weft_structure = "rref_leads_on::notes 1";
  std::vector<int> told;
  notes() { ++alive; }
  explicit notes(int first) : told{first} { ++alive; }
  notes(const notes& other) : told(other.told) { ++alive; }
  notes& operator=(const notes&) = default;
  ~notes() { --alive; }

  asio::awaitable<void> tell(int n) {
    told.push_back(n);
    co_return;
  }
  immediate<void> tell_now(int n) { return told.push_back(n), immediate<void>(); }
  std::vector<int> all() { return told; }
  asio::awaitable<std::vector<int>> list() { co_return told; }
  asio::awaitable<std::string> server(worker& me) { co_return me.name(); }
  std::string fails() { throw std::runtime_error("no notes today"); }
  rref<notes> another(worker& me, int first) { return me.make<notes>(first); }
  rref<notes> at(worker& me, std::uint32_t rank, int first) {
    return me.peer(rank).make<notes>(first);
  }
  void merge(const notes& other) { told.insert(told.end(), other.told.begin(), other.told.end()); }
  asio::awaitable<void> forever() {
    struct count {
      count() { ++waiting_there; }
      ~count() { --waiting_there; }
    } here;
    co_await weft::sleep_for(1h);
  }
  std::vector<rref<notes>> several(worker& me, int n) {
    std::vector<rref<notes>> out;
    for (int i = 0; i < n; ++i) out.push_back(me.make<notes>(i));
    return out;
  }
  asio::awaitable<std::vector<int>> firsts_of(std::vector<rref<notes>> all) {
    std::vector<int> out;
    for (const rref<notes>& r : all) out.push_back((co_await r.call<&notes::list>()).front());
    co_return out;
  }
  /// Many small parts, for which a message is padded.
  std::vector<std::vector<std::string>> same(std::vector<std::vector<std::string>> all) {
    return all;
  }
  asio::awaitable<std::string> called_by(const weft::caller& who) { co_return who.name(); }
  /// Milliseconds until the deadline; -1: there is none.
  asio::awaitable<std::int64_t> time_left(worker& me) {
    const auto scope = weft::this_scope();
    if (!scope || !scope->deadline) co_return -1;
    co_return (*scope->deadline - me.time().now()) / 1ms;
  }
  asio::awaitable<int> count_of(rref<notes> other) {
    co_return static_cast<int>((co_await other.call<&notes::list>()).size());
  }
};
void weft_encode(weft::writer& w, const notes& n) { weft::encode(w, n.told); }
notes weft_decode(weft::reader& r, std::type_identity<notes>) {
  notes out;
  out.told = weft::decode<std::vector<int>>(r);
  return out;
}

rref<notes> made_on(worker& me, std::uint32_t rank) { return me.peer(rank).make<notes>(); }
asio::awaitable<rref<notes>> made_late(worker& me, std::uint32_t rank) {
  co_await weft::sleep_for(20ms);
  co_return me.peer(rank).make<notes>();
}
asio::awaitable<rref<notes>> made_later_still(worker& me, std::uint32_t rank) {
  co_await weft::sleep_for(15ms);
  co_return me.peer(rank).make<notes>();
}
asio::awaitable<rref<notes>> same_late(rref<notes> r) {
  co_await weft::sleep_for(5ms);
  co_return r;
}
/// One whose making fails on that worker.
notes no_notes() { throw std::runtime_error("out of paper"); }
rref<notes> fails_there(worker& me, std::uint32_t rank) {
  return me.peer(rank).remote<&no_notes>();
}
rref<notes> fails_here() { throw std::runtime_error("no reference today"); }
rref<notes> nothing() { return {}; }
/// Each leads on to the next.
rref<notes> by_way_of(worker& me, std::vector<std::uint32_t> ranks) {
  const std::uint32_t next = ranks.back();
  ranks.pop_back();
  if (ranks.empty()) return me.peer(next).make<notes>();
  return me.peer(next).remote<&by_way_of>(std::move(ranks));
}
rref<notes> same(rref<notes> r) { return r; }
rref<weft::exclusive<notes>> exclusive_on(worker& me, std::uint32_t rank) {
  return me.peer(rank).make<weft::exclusive<notes>>();
}
int count(const notes& n) { return static_cast<int>(n.told.size()); }

/// A reference that is given to a worker while it is waited for there. Its thread.
rref<notes>& handed() {
  static rref<notes> it;
  return it;
}
asio::awaitable<void> hand_in(rref<notes> r) {
  handed() = std::move(r);
  co_return;
}
asio::awaitable<rref<notes>> handed_in() {
  // bounded: by the request's deadline
  while (!handed()) co_await weft::sleep_for(1ms);
  co_return std::exchange(handed(), {});
}

}  // namespace rref_leads_on

namespace {
using namespace rref_leads_on;

std::vector<int> counted(int n) {
  std::vector<int> out;
  for (int i = 0; i < n; ++i) out.push_back(i);
  return out;
}

}  // namespace

TEST_CASE("leads on: a result that is a reference is one to the object, usable at once") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    for (const std::uint32_t to : {0u, 1u, 2u}) {
      rref<notes> r = me.peer(1).remote<&made_late>(to);
      static_assert(std::is_same_v<decltype(me.peer(1).remote<&made_late>(to)), rref<notes>>);
      auto first = r.start<&notes::tell>(1);
      r.post<&notes::tell>(2);
      CHECK(co_await r.call<&notes::server>() == me.peer(to).name());
      co_await std::move(first).get();
      CHECK((co_await r.call<&notes::all>()).size() == 2);
      CHECK((co_await r.to_here()).told.size() == 2);
      CHECK(r.owner().rank() == 1);  // who was asked for it
    }
  });
}

TEST_CASE("leads on: what is called comes in the order sent, waiting or not") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    constexpr int many = 600;
    rref<notes> r = me.peer(1).remote<&made_late>(2u);
    for (int i = 0; i < many; ++i) {
      r.post<&notes::tell>(i);
      // Some wait for the reference, others come while those are on their way, and behind them.
      if (i % 3 == 0) co_await weft::sleep_for(100us);
    }
    CHECK(co_await r.call<&notes::list>() == counted(many));
  });
}

TEST_CASE("leads on: calls of every style go on, and those of one style in their order") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    rref<notes> r = me.peer(1).remote<&made_late>(2u);
    std::vector<weft::future<void>> all;
    for (int i = 0; i < 100; ++i) all.push_back(r.start<&notes::tell_now>(i));
    co_await weft::gather(std::move(all));
    CHECK(co_await r.call<&notes::list>() == counted(100));
    co_await r.call<&notes::merge>(notes(7));
    CHECK((co_await r.call<&notes::all>()).back() == 7);
  });
}

TEST_CASE("leads on: through several workers, and home again") {
  pure_everywhere(4, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    rref<notes> far = me.peer(1).remote<&by_way_of>(std::vector<std::uint32_t>{3, 2, 1, 3, 2});
    CHECK(co_await far.call<&notes::server>() == me.peer(3).name());
    rref<notes> home = me.peer(1).remote<&by_way_of>(std::vector<std::uint32_t>{0, 2});
    CHECK(co_await home.call<&notes::server>() == me.name());
    // On one worker it takes no messages, and local() finds it.
    rref<notes> here = me.peer(0).remote<&by_way_of>(std::vector<std::uint32_t>{0, 0, 0});
    CHECK(co_await here.call<&notes::server>() == me.name());
    co_await here.call<&notes::tell>(5);
    CHECK(here.local()->told == std::vector<int>{5});
  });
}

TEST_CASE("leads on: a result that stays may be used before it is there, and refer on itself") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    rref<notes> r = me.peer(1).remote<&made_late>(2u);
    rref<notes> second = r.remote<&notes::another>(5);  // is on 2, known on 1
    rref<notes> third = second.remote<&notes::at>(1u, 6);
    rref<std::vector<int>> told = third.remote<&notes::all>();
    CHECK(co_await told.to_here() == std::vector<int>{6});
    CHECK(co_await second.call<&notes::server>() == me.peer(2).name());
    CHECK(co_await third.call<&notes::server>() == me.peer(1).name());
    // References travel with what goes on, and as arguments where values are expected.
    CHECK(co_await r.call<&notes::count_of>(third) == 1);
    co_await r.call<&notes::merge>(second);
    CHECK(co_await r.call<&notes::list>() == std::vector<int>{5});
    rref<notes> again = me.peer(2).remote<&same>(third);
    CHECK(co_await again.call<&notes::list>() == std::vector<int>{6});
    CHECK(co_await me.peer(1).call<&count>(again) == 1);
    CHECK((co_await me.peer(1).call<&made_on>(2u)).owner().rank() == 2);  // a value, as ever
  });
}

TEST_CASE("leads on: all that a message holds goes on, and comes back") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    rref<notes> r = me.peer(1).remote<&made_on>(2u);
    const auto several = co_await r.call<&notes::several>(5);
    REQUIRE(several.size() == 5);
    for (int i = 0; i < 5; ++i) {
      CHECK(several[static_cast<std::size_t>(i)].owner().rank() == 2);
      CHECK(co_await several[static_cast<std::size_t>(i)].call<&notes::list>() ==
            std::vector<int>{i});
    }
    const std::vector<rref<notes>> mixed{several[3], me.make<notes>(7), several[3],
                                         me.peer(1).make<notes>(8), several[0]};
    CHECK(co_await r.call<&notes::firsts_of>(mixed) == std::vector<int>{3, 7, 3, 8, 0});
    CHECK((co_await r.call<&notes::another>(9)).owner().rank() == 2);
    const std::vector<std::vector<std::string>> small(30'000, std::vector<std::string>(1));
    CHECK(co_await r.call<&notes::same>(small) == small);
    CHECK(co_await r.call<&notes::called_by>() == me.peer(1).name());
    CHECK(co_await r.call<&notes::time_left>(weft::within(1h)) > 50 * 60'000);
    CHECK(co_await r.call<&notes::time_left>(weft::within(1h)) <= 60 * 60'000);
    CHECK(co_await r.call<&notes::time_left>(weft::within(weft::no_limit)) == -1);
  });
}

TEST_CASE("leads on: an exclusive object takes turns behind a reference, too") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const auto r = me.peer(1).remote<&exclusive_on>(2u);
    static_assert(std::is_same_v<decltype(r), const rref<weft::exclusive<notes>>>);
    std::vector<weft::future<void>> all;
    for (int i = 0; i < 50; ++i) all.push_back(r.start<&notes::tell>(i));
    co_await weft::gather(std::move(all));
    CHECK(co_await r.call<&notes::list>() == counted(50));
  });
}

TEST_CASE("leads on: a post that fails is counted by who passed it on") {
  run_pure(3, over::unix_socket, 1u, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    rref<notes> r = me.peer(1).remote<&made_on>(2u);
    r.post<&notes::fails>();
    CHECK(co_await eventually([&] { return all.at(1).stats().posts_failed == 1; }));
    CHECK(all.at(2).stats().posts_failed == 0);
  });
}

TEST_CASE("leads on: a post that is lost with the object's worker is said by who passed it on") {
  struct heard {
    std::mutex mutex;
    std::string text;
    heard() {
      weft::log_to([this](const weft::log_entry& e) {
        const std::lock_guard lock(mutex);
        text += std::string(e.who) + ": " + std::string(e.text) + "\n";
      });
    }
    ~heard() { weft::log_to({}); }
    bool has(const char* words) {
      const std::lock_guard lock(mutex);
      return text.find(words) != std::string::npos;
    }
  } all_that_is_said;
  weft::options o = with_io_threads(1);
  o.on_loss = weft::loss_policy::go_on();
  pure_cluster all(3, over::tcp, o);
  bool said = false;
  const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    rref<notes> r = me.peer(1).remote<&made_on>(2u);
    co_await r.call<&notes::tell>(1);
    r.post<&notes::forever>();
    CHECK(co_await eventually([] { return waiting_there == 1; }));
    co_await me.peer(1).call<&lose_link>(2u);
    said = co_await eventually([&] {
      return all_that_is_said.has("worker1: a post of 'rref_leads_on::notes::forever' by worker "
                                  "'worker0' failed: ");
    });
  });
  CHECK_FALSE(ends[0]);
  CHECK(said);
  CHECK(all_that_is_said.has("owner died"));
}

TEST_CASE("leads on: as often as a request may, and no more") {
  run_pure(3, over::inproc, 1u, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    for (const std::size_t many : {std::size_t{63}, std::size_t{64}}) {
      std::vector<std::uint32_t> way;
      for (std::size_t i = 0; i < many; ++i)
        way.push_back(static_cast<std::uint32_t>(1 + (many - i) % 2));
      rref<notes> far = me.peer(1).remote<&by_way_of>(way);
      const auto got = co_await far.call<&notes::all>(weft::as_expected);
      CHECK(got.has_value() == (many == 63));
      if (!got) CHECK(got.error() == errc::invalid_argument);
      if (!got) CHECK(got.error().ran() == call_progress::not_executed);
      rref<notes> here = me.peer(0).remote<&by_way_of>(std::vector<std::uint32_t>(many, 0U));
      // As they are made each may be waited for; once all are there they are followed at once. A
      // call that met the limit says nothing about those behind it.
      bool reached = false;
      for (int tries = 0; tries < 100; ++tries) {
        reached = (co_await here.call<&notes::all>(weft::as_expected)).has_value();
        if (tries > 0 && reached == (many == 63)) break;
      }
      CHECK(reached == (many == 63));
    }
  });
}

TEST_CASE("leads on: bytes that no worker sends are refused") {
  using namespace weft::rref_protocol;
  const auto bytes_of = [](bool target, std::uint8_t forwards) {
    weft::bytes out;
    append_head(out, target ? std::optional(weft::rref_id{1, 2, 3}) : std::nullopt, forwards,
                std::nullopt, 0);
    return out;
  };
  CHECK(read_section(bytes_of(true, most_forwards).view(), true)->forwards == most_forwards);
  CHECK(read_section(bytes_of(true, 0).view(), true)->forwards == 0);
  CHECK_FALSE(read_section(bytes_of(false, 1).view(), true));
  CHECK_FALSE(read_section(bytes_of(true, 0).view(), false));
  CHECK_FALSE(read_section(bytes_of(true, 1).view(), false));
  CHECK(read_section(bytes_of(false, 0).view(), false));
}

TEST_CASE("leads on: objects die with the last that leads to them") {
  run_pure(3, over::tcp, 1u, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    const int before = alive;
    {
      rref<notes> r = me.peer(1).remote<&by_way_of>(std::vector<std::uint32_t>{0, 2});
      rref<notes> second = r.remote<&notes::at>(2u, 1);
      co_await second.call<&notes::tell>(1);
      CHECK(alive == before + 2);
      r = {};
      co_await second.call<&notes::tell>(2);
    }
    const bool gone = co_await eventually([&] { return alive == before; });
    CHECK(gone);
    CHECK(co_await nothing_is_left(all));
  });
}

TEST_CASE("leads on: what went wrong, in words, and what ran") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    rref<notes> r = me.peer(1).remote<&made_on>(2u);
    auto thrown = co_await r.call<&notes::fails>(weft::as_expected);
    CHECK(thrown.error() == errc::remote_exception);
    CHECK(thrown.error().ran() == call_progress::executed);
    CHECK(thrown.error().detail().peer == me.peer(2).name());
    CHECK(thrown.error().message().find("no notes today") != std::string::npos);

    rref<notes> not_there = me.peer(1).remote<&fails_there>(2u);
    auto unmade = co_await not_there.call<&notes::all>(weft::as_expected);
    CHECK(unmade.error().ran() == call_progress::not_executed);
    CHECK(unmade.error().message().find("out of paper") != std::string::npos);

    rref<notes> not_here = me.peer(1).remote<&fails_here>();
    auto unknown = co_await not_here.call<&notes::all>(weft::as_expected);
    CHECK(unknown.error().message().find("no reference today") != std::string::npos);

    rref<notes> empty = me.peer(1).remote<&nothing>();
    auto none = co_await empty.call<&notes::all>(weft::as_expected);
    CHECK(none.error().ran() == call_progress::not_executed);
    CHECK(none.error().message().find("empty reference") != std::string::npos);

    // What stays behind one that failed is told why as well.
    rref<std::vector<int>> behind = not_there.remote<&notes::all>();
    auto why = co_await behind.to_here(weft::as_expected);
    CHECK(why.error().message().find("out of paper") != std::string::npos);

    rref<notes> mine = me.peer(0).remote<&made_on>(2u);
    co_await mine.call<&notes::tell>(1);
    try {
      static_cast<void>(mine.local());
      CHECK(false);
    } catch (const rpc_error& e) {
      CHECK(e.error() == errc::rref_not_owner);
      CHECK(e.error().message().find("leads on to an object of worker '" + me.peer(2).name()) !=
            std::string::npos);
    }
  });
}

TEST_CASE("leads on: deadlines and cancellation reach the object") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    rref<notes> r = me.peer(1).remote<&made_on>(2u);
    co_await r.call<&notes::tell>(1);
    auto late = co_await r.call<&notes::forever>(weft::within(30ms), weft::as_expected);
    CHECK(late.error() == errc::timed_out);
    {
      auto unheard = r.start<&notes::forever>(weft::within(1h));
      CHECK(co_await eventually([] { return waiting_there == 1; }));
    }  // given up
    CHECK(co_await eventually([] { return waiting_there == 0; }));
  });
}

TEST_CASE("leads on: a circle is an error, on one worker and across several") {
  for (const std::uint32_t on : {0u, 1u}) {
    pure_cluster all(3, over::inproc, with_io_threads(1));
    const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      rref<notes> a = me.peer(on).remote<&handed_in>();
      rref<notes> b = me.peer(on == 0 ? 0 : 2).remote<&same>(a);
      co_await me.peer(on).call<&hand_in>(b);
      for (const auto& r : {a, b}) {
        auto nothing_there = co_await r.call<&notes::all>(weft::as_expected);
        CHECK(nothing_there.error() == errc::invalid_argument);
        CHECK(nothing_there.error().ran() == call_progress::not_executed);
      }
    });
    for (const auto& end : ends) CHECK_FALSE(end);
  }
}

TEST_CASE("leads on: the loss of the worker in between, or of the object's, is that of the owner") {
  for (const std::uint32_t lost : {1u, 2u}) {
    CAPTURE(lost);
    weft::options o = with_io_threads(1);
    o.on_loss = weft::loss_policy::go_on();
    o.compute_threads = 2;
    pure_cluster all(3, over::tcp, o);
    bool came_to_its_end = false;
    const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      rref<notes> r = me.peer(1).remote<&made_on>(2u);
      co_await r.call<&notes::tell>(1);
      auto waits = r.start<&notes::forever>(weft::within(1h));
      CHECK(co_await eventually([] { return waiting_there == 1; }));
      if (lost == 1) {
        co_await lose_link(me, 1);
      } else {  // what 1 knows of it, and worker 0 need not
        co_await me.peer(1).call<&lose_link>(2u);
      }
      try {
        co_await std::move(waits).get();
        CHECK(false);
      } catch (const rpc_error& e) {
        CHECK(e.error() == errc::rref_owner_died);
        CHECK(e.error().ran() == call_progress::maybe_executed);
      }
      auto after = co_await r.call<&notes::all>(weft::as_expected);
      REQUIRE_FALSE(after);
      CHECK(after.error() == errc::rref_owner_died);
      CHECK(after.error().detail().peer == me.peer(lost).name());
      if (lost == 2) {
        CHECK(after.error().ran() == call_progress::not_executed);
        // One that is handed on where its owner is gone, and returned from there.
        rref<notes> again = me.peer(1).remote<&same>(r);
        auto gone = co_await again.call<&notes::all>(weft::as_expected);
        CHECK(gone.error() == errc::rref_owner_died);
        rref<std::vector<int>> stays = r.remote<&notes::all>();
        auto unmade = co_await stays.to_here(weft::as_expected);
        CHECK(unmade.error() == errc::rref_owner_died);
      }
      came_to_its_end = true;
    });
    CHECK(came_to_its_end);
    CHECK_FALSE(ends[0]);
  }
}

TEST_CASE("leads on: local() says whose object it is, and not that this worker is lost") {
  weft::options o = with_io_threads(1);
  o.on_loss = weft::loss_policy::go_on();
  pure_cluster all(3, over::tcp, o);
  const auto ends = all.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const std::string lost = me.peer(2).name();
    rref<notes> near = me.peer(0).remote<&made_on>(2u);
    rref<notes> behind = me.peer(0).remote<&same>(near);
    co_await behind.call<&notes::tell>(1);
    rref<notes> failed = me.peer(0).remote<&fails_there>(2u);
    CHECK_FALSE(co_await failed.call<&notes::all>(weft::as_expected));
    co_await lose_link(me, 2);
    rref<notes> after = me.peer(0).remote<&same>(near);
    CHECK_FALSE(co_await after.call<&notes::all>(weft::as_expected));
    for (const auto& r : {near, behind, failed, after}) {
      try {
        static_cast<void>(r.local());
        CHECK(false);
      } catch (const rpc_error& e) {
        const std::string text = e.what();
        CHECK_MESSAGE(e.error() == errc::rref_not_owner, text);
        CHECK_MESSAGE(text.find("leads on to an object of worker '" + lost) != std::string::npos,
                      text);
      }
    }
  });
  CHECK_FALSE(ends[0]);
}

TEST_CASE("leads on: those who wait for one that leads to another wait there in their order") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    for (const std::uint32_t last : {0u, 1u, 2u}) {
      // On 1: a reference that comes late, to one on 1 that comes later, to an object somewhere.
      rref<notes> far = me.peer(1).remote<&made_later_still>(last);
      rref<notes> near = me.peer(1).remote<&same_late>(far);
      std::vector<weft::future<void>> all;
      for (int i = 0; i < 200; ++i) {
        // Each style in its own order: they wait and go on in different ways.
        all.push_back(near.start<&notes::tell>(i));
        if (i % 8 == 0) co_await weft::sleep_for(400us);
      }
      auto given_up = near.start<&notes::tell>(1000, weft::within(1us));
      co_await weft::gather(std::move(all));
      CHECK(co_await near.call<&notes::list>() == counted(200));
      CHECK(co_await far.call<&notes::list>() == counted(200));
      try {
        co_await std::move(given_up).get();
        CHECK(false);
      } catch (const rpc_error& e) {
        CHECK(e.error() == errc::timed_out);
      }
    }
  });
}
