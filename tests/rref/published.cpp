// SPDX-License-Identifier: BSL-1.0
// Names that workers give to objects: who finds them, who waits for them, and how that ends.
#include "pure.hpp"
#include <weft/engine/services/lookup.hpp>
#include <weft/engine/services/published_names.hpp>
#include <weft/rref/published.hpp>

#include <asio/post.hpp>

#include <atomic>
#include <chrono>
#include <core/error_of.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rref_published {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::call_progress;
using weft::errc;
using weft::error;
using weft::rref;
using weft::worker;

struct box {
  explicit box(int v) : value(v) { ++alive(); }
  box(box&& other) noexcept : value(other.value) { ++alive(); }
  box& operator=(box&&) = delete;
  ~box() { --alive(); }
  int value;
  int get() { return value; }
  static std::atomic<int>& alive() {
    static std::atomic<int> it{0};
    return it;
  }
};
struct crate {
  int value = 7;
  int get() { return value; }
};

void publish_box(worker& me, std::string name, int value) {
  me.publish(std::move(name), me.share(box(value)));
}
void publish_crate(worker& me, std::string name) { me.publish(std::move(name), me.share(crate())); }
void publish_it(worker& me, std::string name, rref<box> it) { me.publish(std::move(name), it); }
bool unpublish(worker& me, std::string name) { return me.unpublish(name); }

std::size_t in_line(pure_cluster& all, std::uint32_t rank) {
  return rrefs(all, rank).published().waiting();
}
/// What publishing it says; success if it says nothing.
template <class T>
error refused(worker& me, std::string name, const rref<T>& it) {
  return error_of([&] { me.publish(std::move(name), it); });
}

/// On another worker, as a started call.
asio::awaitable<int> value_of(worker& me, std::uint32_t where, std::string name) {
  const rref<box> it = co_await me.peer(where).lookup<box>(std::move(name));
  co_return co_await it.call<&box::get>();
}
/// The error of a lookup there, which has 20 s.
asio::awaitable<int> failure_there(worker& me, std::uint32_t where, std::string name) {
  const auto it =
      co_await me.peer(where).lookup<box>(std::move(name), weft::within(20s), weft::as_expected);
  co_return it ? 0 : it.error().code().value();
}
asio::awaitable<std::string> words_of_inherited_end(worker& me) {
  const auto it =
      co_await me.peer(me.rank()).lookup<box>("never", weft::within(1h), weft::as_expected);
  co_return it ? "" : it.error().message();
}
/// Whether `done()` before that time has passed.
asio::awaitable<bool> eventually_within(worker& me, weft::duration d, std::function<bool()> done) {
  const weft::time_point end = me.time().now() + d;
  co_return co_await eventually([&] { return done() || me.time().now() >= end; }) && done();
}

namespace {

TEST_CASE("published: an object is found by its name, at once or once it is there") {
  pure_everywhere(2, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    for (const std::uint32_t rank : {1u, 0u}) {
      const weft::peer there = me.peer(rank);
      co_await there.call<&publish_box>("first", 5);
      const rref<box> found = co_await there.lookup<box>("first");
      CHECK(found.owner() == there);
      CHECK(co_await found.call<&box::get>() == 5);
      CHECK(co_await there.lookup<box>("first") == found);

      auto later = me.spawn(there.lookup<box>("second"));
      CHECK(co_await eventually([&] { return in_line(all, rank) == 1; }));
      CHECK_FALSE(later.ready());
      co_await there.call<&publish_box>("third", 6);
      CHECK_FALSE(later.ready());
      co_await there.call<&publish_box>("second", 7);
      const weft::expected<rref<box>> it = co_await std::move(later);
      CHECK(co_await it->call<&box::get>() == 7);
      CHECK(in_line(all, rank) == 0);
      CHECK_FALSE(rrefs(all, rank).idle());
      for (const char* name : {"first", "second", "third"}) {
        CHECK(co_await there.call<&unpublish>(name));
        CHECK_FALSE(co_await there.call<&unpublish>(name));
      }
    }
    CHECK(co_await eventually([] { return box::alive() == 0; }));
  });
}

TEST_CASE("published: all who wait for one name are woken, by any thread, and nobody else") {
  pure_everywhere(3, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    std::vector<weft::future<int>> waiting;
    for (int i = 0; i < 4; ++i) {
      for (std::uint32_t r = 0; r < 3; ++r) {
        waiting.push_back(me.peer(r).start<&value_of>(1u, "shared"));
      }
    }
    auto other = me.spawn(me.peer(1).lookup<box>("other"));
    CHECK(co_await eventually([&] { return in_line(all, 1) == 13; }));
    worker& there = all.at(1);
    std::thread([&there] { publish_box(there, "shared", 9); }).join();
    for (auto& w : waiting) CHECK(co_await std::move(w) == 9);
    CHECK(in_line(all, 1) == 1);
    CHECK_FALSE(other.ready());
    other.request_stop();
    CHECK(co_await eventually([&] { return in_line(all, 1) == 0; }));
    std::thread([&there] { CHECK(there.unpublish("shared")); }).join();
  });
}

TEST_CASE("published: an object of another type is refused at once, with both and the name") {
  pure_everywhere(2, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    const weft::peer there = me.peer(1);
    const auto check = [](const error& why) {
      INFO(why.message());
      CHECK(why == errc::bad_arguments);
      CHECK(why.ran() == call_progress::not_executed);
      CHECK(says(why, "rref_published::box"));
      CHECK(says(why, "rref_published::crate"));
      CHECK(says(why, "'model'"));
      CHECK(says(why, "worker1"));
      CHECK(says(why, "weft::peer::lookup"));
    };
    auto waiting = me.spawn(there.lookup<box>("model"));
    CHECK(co_await eventually([&] { return in_line(all, 1) == 1; }));
    co_await there.call<&publish_crate>("model");
    check(co_await failure_of(std::move(waiting)));
    check(co_await failure_of(there.lookup<box>("model", weft::as_expected)));
    CHECK(co_await (co_await there.lookup<crate>("model")).call<&crate::get>() == 7);
    CHECK(co_await there.call<&unpublish>("model"));
  });
}

TEST_CASE("published: a name is of one object until it is taken back") {
  run_pure(2, over::inproc, 0, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    {
      const rref<box> one = me.share(box(1));
      const rref<box> two = me.peer(1).make<box>(2);
      me.publish("model", one);
      me.publish("model", one);
      me.publish("model", co_await me.peer(0).lookup<box>("model"));
      const error why = refused(me, "model", two);
      INFO(why.message());
      CHECK(why == errc::duplicate_name);
      CHECK(says(why, "'model'"));
      CHECK(refused(me, "model", me.share(crate())) == errc::duplicate_name);
      CHECK(co_await me.peer(1).call<&value_of>(0u, "model") == 1);
      CHECK(me.unpublish("model"));

      auto waiting = me.peer(1).start<&value_of>(0u, "model");
      CHECK(co_await eventually([&] { return in_line(all, 0) == 1; }));
      me.publish("model", two);
      CHECK(co_await std::move(waiting) == 2);
      me.publish("also", two);
      CHECK(co_await me.peer(1).call<&value_of>(0u, "also") == 2);
    }
    CHECK(co_await eventually([] { return box::alive() == 1; }));
    CHECK(me.unpublish("model"));
    CHECK(co_await me.peer(1).call<&value_of>(0u, "also") == 2);
    CHECK(me.unpublish("also"));
    CHECK(co_await eventually([] { return box::alive() == 0; }));
  });
}

TEST_CASE("published: a name that is taken back at once wakes nobody for nothing") {
  run_pure(2, over::inproc, 1, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    auto waiting = me.peer(1).start<&value_of>(0u, "model");
    CHECK(co_await eventually([&] { return in_line(all, 0) == 1; }));
    for (int i = 0; i < 3; ++i) {  // before the one who waits can look
      publish_box(me, "model", 1);
      CHECK(me.unpublish("model"));
    }
    CHECK(co_await eventually([&] { return in_line(all, 0) == 1; }));
    CHECK_FALSE(waiting.ready());
    publish_box(me, "model", 2);
    CHECK(co_await std::move(waiting) == 2);
    CHECK(me.unpublish("model"));
  });
}

TEST_CASE("published: what can be no name, or no object, is refused") {
  run_pure(2, over::inproc, 0, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    const std::string longest(1024, 'x'), too_long(1025, 'x');
    const rref<box> it = me.share(box(1));
    for (const std::string& name : {std::string(), too_long}) {
      CHECK(refused(me, name, it) == errc::invalid_argument);
      const auto before = me.stats().calls;
      const error why = co_await failure_of(me.peer(1).lookup<box>(name, weft::as_expected));
      CHECK(why == errc::invalid_argument);
      CHECK(why.ran() == call_progress::not_sent);
      CHECK(co_await thrown_by(me.peer(1).lookup<box>(name)) == errc::invalid_argument);
      CHECK(me.stats().calls == before);
      CHECK_FALSE(me.unpublish(name));
    }
    CHECK_FALSE(refused(me, longest, it));
    CHECK(co_await me.peer(1).call<&value_of>(0u, longest) == 1);
    CHECK(me.unpublish(longest));

    CHECK(refused(me, "model", rref<box>()) == errc::invalid_argument);
    const error why = refused(all.at(1), "model", it);
    CHECK(why == errc::invalid_argument);
    CHECK(says(why, "worker0"));
    struct local {};
    const error unnamed = refused(me, "model", me.share(std::vector<local>()));
    CHECK(unnamed == errc::invalid_argument);
    CHECK(says(unnamed, "local"));
    CHECK(rrefs(all, 1).published().idle());
  });
}

TEST_CASE("published: the object may live elsewhere, and lives until nobody has it") {
  pure_everywhere(3, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    co_await me.peer(1).call<&publish_it>("model", me.peer(2).make<box>(3));
    CHECK(co_await me.peer(2).call<&value_of>(1u, "model") == 3);
    {
      const rref<box> found = co_await me.peer(1).lookup<box>("model");
      CHECK(found.owner().rank() == 2);
      CHECK(co_await found.call<&box::get>() == 3);
      CHECK(co_await me.peer(1).call<&unpublish>("model"));
      CHECK(co_await found.call<&box::get>() == 3);
      CHECK(box::alive() == 1);
    }
    CHECK(co_await eventually([] { return box::alive() == 0; }));
    CHECK(rrefs(all, 1).published().idle());
  });
}

TEST_CASE("published: who gives up leaves nothing behind") {
  pure_everywhere(3, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    for (const std::uint32_t rank : {1u, 0u}) {
      const weft::peer there = me.peer(rank);
      auto stopped = me.spawn(there.lookup<box>("never"));
      auto dropped = me.spawn(there.lookup<box>("never"));
      CHECK(co_await eventually([&] { return in_line(all, rank) == 2; }));
      stopped.request_stop();
      CHECK(co_await failure_of(std::move(stopped)) == errc::cancelled);
      dropped = {};
      CHECK(co_await eventually([&] { return rrefs(all, rank).idle(); }));
      CHECK(co_await thrown_by(there.lookup<box>("never", weft::within(20ms))) == errc::timed_out);
      CHECK(co_await eventually([&] { return rrefs(all, rank).idle(); }));
      // It is published in the same turn in which the caller gives up.
      for (int i = 0; i < 20; ++i) {
        auto both = me.spawn(there.lookup<box>("both"));
        if (i % 2 == 1) co_await there.call<&unpublish>("nothing");
        auto published = there.start<&publish_box>("both", i);
        if (i % 3 == 1) co_await asio::post(asio::use_awaitable);
        both.request_stop();
        const error why = co_await failure_of(std::move(both));
        CHECK((!why || why == errc::cancelled));
        co_await std::move(published);
        CHECK(co_await there.call<&unpublish>("both"));
      }
    }
  });
}

TEST_CASE("published: who waits for a name and loses its link there leaves nothing behind") {
  pure_everywhere(
      3,
      [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
        auto lost = me.peer(2).start<&failure_there>(1u, "never");
        CHECK(co_await eventually([&] { return in_line(all, 1) == 1; }));
        co_await me.peer(1).call<&lose_link>(2u);
        CHECK(co_await eventually([&] { return in_line(all, 1) == 0; }));
        CHECK(co_await code_or_failure(std::move(lost)) == errc::peer_died);
        co_await me.peer(1).call<&publish_box>("box", 1);
        CHECK(co_await me.peer(1).call<&unpublish>("box"));
      },
      2);
}

TEST_CASE("published: who waited in vain hears where, and of a few names that are there") {
  run_pure(2, over::tcp, 1, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    const weft::peer there = me.peer(1);
    // A busy machine may not answer in the last moments: then there is no list.
    const auto in_vain = [&]() -> asio::awaitable<error> {
      error why;
      for (int ms = 200; ms < 10'000 && !says(why, "'mdoel'"); ms *= 2) {
        const std::chrono::milliseconds limit(ms);
        const weft::time_point begun = me.time().now();
        why =
            co_await failure_of(there.lookup<box>("mdoel", weft::within(limit), weft::as_expected));
        CHECK(me.time().now() - begun >= limit);
        CHECK(why == errc::timed_out);
        CHECK(says(why, "worker1"));
        CHECK(why.detail().deadline == limit);
        CHECK(why.detail().elapsed >= limit);
      }
      INFO(why.message());
      CHECK(why.ran() == call_progress::not_executed);
      CHECK(says(why, "'mdoel'"));
      co_return why;
    };
    const error none = co_await in_vain();
    CHECK(says(none, "nothing is published there"));
    for (int i = 0; i < 10; ++i) {
      co_await there.call<&publish_box>("model" + std::to_string(i), i);
    }
    const error why = co_await in_vain();
    CHECK(says(why, "'model0', 'model1'"));
    CHECK(says(why, "'model7' and 2 more"));
    CHECK_FALSE(says(why, "model8"));
    CHECK(co_await eventually([&] { return in_line(all, 1) == 0; }));
    for (int i = 0; i < 10; ++i) {
      CHECK(co_await there.call<&unpublish>("model" + std::to_string(i)));
    }
    // What is published after that list is found all the same.
    for (const auto after : {350ms, 450ms}) {
      auto late = me.spawn(there.lookup<box>("late", weft::within(500ms)));
      CHECK_FALSE(co_await eventually_within(me, after, [&] { return late.ready(); }));
      co_await there.call<&publish_box>("late", 1);
      const error end = co_await failure_of(std::move(late));
      CHECK((!end || end == errc::timed_out));  // on a busy machine
      CHECK(co_await there.call<&unpublish>("late"));
    }
    // A deadline that it inherits counts as its own. The caller's rings at the same time: on a busy
    // machine the answer, which is what the lookup said, may come first.
    const weft::time_point begun = me.time().now();
    const auto words =
        co_await there.call<&words_of_inherited_end>(weft::within(100ms), weft::as_expected);
    CHECK(me.time().now() - begun >= 100ms);
    CHECK((words ? *words != "" : words.error() == errc::timed_out));
    // One without a deadline waits.
    auto patient = me.spawn(there.lookup<box>("late", weft::within(std::chrono::hours::max())));
    CHECK(co_await eventually([&] { return in_line(all, 1) == 1; }));
    co_await there.call<&publish_box>("late", 1);
    CHECK_FALSE(co_await failure_of(std::move(patient)));
    CHECK(co_await there.call<&unpublish>("late"));
  });
}

TEST_CASE("published: what no caller of ours sends is refused") {
  using weft::engine::lookup_function;
  using weft::engine::lookup_mode;
  run_pure(2, over::tcp, 1, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    const auto ask = [&me](std::string name, std::string type, lookup_mode how,
                           weft::duration limit = 30s) {
      return weft::detail::make_call<lookup_function>(
          me.link_to(1), weft::detail::prepare_nothing{}, std::move(name), std::move(type), how,
          weft::within(limit), weft::as_expected);
    };
    for (const std::string& name : {std::string(), std::string(100'000, 'x')}) {
      const error why = co_await failure_of(ask(name, "int", lookup_mode::waits));
      CHECK(why == errc::invalid_argument);
      CHECK(why.ran() == call_progress::not_executed);
    }
    co_await me.peer(1).call<&publish_box>("model", 1);
    const std::string types[]{"", "rref_published::boxes", std::string(100'000, 'x')};
    for (const std::string& type : types) {
      CHECK(co_await failure_of(ask("model", type, lookup_mode::looks)) == errc::bad_arguments);
    }
    // Not kept until the name is published, either.
    const error late = co_await failure_of(ask("nothing", types[2], lookup_mode::waits));
    CHECK(late == errc::bad_arguments);
    CHECK(late.ran() == call_progress::not_executed);
    const auto odd = static_cast<lookup_mode>(77);
    CHECK(co_await failure_of(ask("nothing", "int", odd, 50ms)) == errc::timed_out);
    CHECK_FALSE(co_await failure_of(ask("model", "rref_published::box", odd)));
    CHECK(co_await eventually([&] { return in_line(all, 1) == 0; }));
    CHECK(co_await me.peer(1).call<&unpublish>("model"));
  });
}

TEST_CASE("published: a run ends with names that are still published") {
  for (const auto [how, io_threads] : ways()) {
    pure_cluster all(3, how, with_io_threads(io_threads));
    const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
      publish_box(me, "mine", 1);
      me.publish("next", me.peer((me.rank() + 1) % 3).make<box>(2));
      CHECK(co_await value_of(me, 0, "next") == 2);
    });
    for (const error& end : ends) CHECK_MESSAGE(!end, end.message());
    for (std::uint32_t r = 0; r < 3; ++r) {
      CHECK(rrefs(all, r).published().idle());
      const rref<box> none;
      CHECK(refused(all.at(r), "model", none) == errc::invalid_argument);
      CHECK(refused(all.at(r), "model", all.at(r).share(box(1))) == errc::shutting_down);
    }
  }
  CHECK(box::alive() == 0);
}

TEST_CASE("published: who waits when the run fails is told so") {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    std::atomic<int> told{0};
    pure_cluster all(3, how, with_io_threads(io_threads));
    const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
      publish_box(me, "mine", 1);
      if (me.rank() == 2) {
        CHECK(co_await eventually([&] { return in_line(all, 0) == 2 && in_line(all, 1) == 2; }));
        throw std::runtime_error("rank 2 is tired");
      }
      auto other = me.spawn(me.peer(1 - me.rank()).lookup<box>("never"));
      const error mine =
          co_await failure_of(me.peer(me.rank()).lookup<box>("never", weft::as_expected));
      const error its = co_await failure_of(std::move(other));
      for (const error& why : {mine, its}) {
        INFO(why.message());
        CHECK(why == errc::peer_died);
        CHECK(says(why, "rank 2 is tired"));
        ++told;
      }
    });
    CHECK(ends[0] == errc::peer_died);
    CHECK(told == 4);
    for (std::uint32_t r = 0; r < 3; ++r) CHECK(rrefs(all, r).published().idle());
  }
  CHECK(box::alive() == 0);
}

TEST_CASE("published: a run waits for who still looks, as for any call") {
  pure_cluster all(2, over::tcp, with_io_threads(1));
  const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    me.spawn(me.peer(1).lookup<box>("never", weft::within(200ms))).detach();
    me.spawn(me.peer(0).lookup<box>("never", weft::within(300ms))).detach();
  });
  for (const error& end : ends) CHECK_MESSAGE(!end, end.message());
}

}  // namespace
}  // namespace rref_published
