// SPDX-License-Identifier: BSL-1.0
// References where values are expected: the callee gets the value before the function runs.
#include "pure.hpp"
#include <weft/core/sleep_for.hpp>
#include <weft/rpc/retry.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rref_resolved {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::call_progress;
using weft::errc;
using weft::immediate;
using weft::rref;
using weft::worker;

std::atomic<int> runs{0};
gate& door() {
  static gate it;
  return it;
}

int add(int a, int b) {
  ++runs;
  return a + b;
}
asio::awaitable<std::string> say(worker& me, std::string what, const std::vector<int>& how_often) {
  ++runs;
  std::string out = me.name() + ":";
  for (const int n : how_often) out += " " + what + std::to_string(n);
  co_return out;
}
immediate<int> twice(int a) { return 2 * a; }
std::atomic<int> heard{0};
void hear(const std::string& text) { heard = static_cast<int>(text.size()); }
std::string word() { return "word"; }
int behind_the_door(int a) {
  door().pass();
  return a;
}
std::string fails() { throw std::runtime_error("no word today"); }
std::vector<int> fails_to_list() { throw std::runtime_error("no list"); }
int length(const std::string& text) {
  ++runs;
  return static_cast<int>(text.size());
}
int whole(int a) { return a; }
std::vector<int> list(int n) { return std::vector<int>(static_cast<std::size_t>(n), n); }

/// Cannot be made of nothing, nor be copied cheaply unseen.
struct label {
  static constexpr std::string_view weft_structure = "rref_resolved::label 1";
  explicit label(std::string t) : text(std::move(t)) {}
  std::string text;
  friend void weft_encode(weft::writer& w, const label& l) { weft::encode(w, l.text); }
  friend label weft_decode(weft::reader& r, std::type_identity<label>) {
    return label(weft::decode<std::string>(r));
  }
};
label make_label(std::string t) { return label(std::move(t)); }

struct shelf {
  std::vector<std::string> labels;
  asio::awaitable<void>
  put(label l) {  // on the worker's thread, as all that changes or counts them
    labels.push_back(std::move(l.text));
    co_return;
  }
  asio::awaitable<int> put_later(label l, int at_least) {
    labels.push_back(std::move(l.text));
    co_return std::max(at_least, static_cast<int>(labels.size()));
  }
  immediate<int> size(int more) const { return static_cast<int>(labels.size()) + more; }
};
std::string joined(const shelf& s, std::string between) {
  std::string out;
  for (const std::string& l : s.labels) out += l + between;
  return out;
}

TEST_CASE("resolved: values are got from where they are, for functions of each kind") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const weft::peer far = me.peer(1), farther = me.peer(2);
    const rref<int> seven = far.remote<&add>(3, 4);
    CHECK(co_await farther.call<&add>(seven, 5) == 12);
    CHECK(co_await far.call<&add>(5, seven) == 12);  // its owner
    CHECK(co_await me.peer(0).call<&add>(seven, seven) == 14);
    CHECK(co_await farther.start<&twice>(seven) == 14);
    const rref<std::vector<int>> here = me.share(std::vector<int>{1, 2});
    CHECK(co_await farther.call<&say>(far.remote<&word>(), here) == "worker2: word1 word2");
    CHECK(co_await farther.call<&say>("w", far.remote<&list>(seven)) ==
          "worker2: w7 w7 w7 w7 w7 w7 w7");
    farther.post<&hear>(far.remote<&word>());
    CHECK(co_await eventually([] { return heard.exchange(0) == 4; }));
    const auto as_value =
        co_await farther.call<&add>(seven, 1, weft::as_expected, weft::within(9s));
    REQUIRE(as_value);
    CHECK(*as_value == 8);
  });
}

TEST_CASE("resolved: a chain runs from worker to worker, none of it made when the next is asked") {
  pure_everywhere(4, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    door().close();
    const rref<int> first = me.peer(1).remote<&behind_the_door>(20);
    const rref<int> second = me.peer(2).remote<&add>(first, 1);
    const rref<int> third = me.peer(3).remote<&add>(second, first);
    const rref<int> last = me.peer(1).remote<&twice>(third);
    weft::future<int> at_the_end = me.peer(2).start<&whole>(last);
    CHECK(co_await eventually([] { return door().arrived() == 1; }));
    CHECK_FALSE(at_the_end.ready());
    door().open();
    CHECK(co_await std::move(at_the_end) == 82);
    CHECK(co_await last.to_here() == 82);
  });
}

TEST_CASE("resolved: functions of objects, and those that look at one") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const rref<shelf> s = me.peer(1).make<shelf>();
    const rref<label> first = me.peer(2).remote<&make_label>("a");
    co_await s.call<&shelf::put>(first);
    CHECK(co_await s.start<&shelf::put_later>(me.share(label("b")), me.share(0)) == 2);
    s.post<&shelf::put>(first);
    const rref<int> three = me.peer(2).remote<&whole>(3);
    int size = 0;
    for (int i = 0; i < 20'000 && size != 6; ++i) size = co_await s.call<&shelf::size>(three);
    CHECK(size == 6);
    CHECK(co_await s.call<&joined>(me.peer(2).remote<&word>()) == "awordbwordaword");
    const rref<std::string> all = s.remote<&joined>(me.share(std::string("+")));
    CHECK(co_await me.peer(2).call<&length>(all) == 6);
  });
}

TEST_CASE("resolved: an argument that failed is named, and the function has not run") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const rref<std::string> none = me.peer(1).remote<&fails>();
    runs = 0;
    const weft::error e = co_await thrown_by(me.peer(2).call<&length>(none));
    INFO(e.message());
    CHECK(e == errc::remote_exception);
    CHECK(e.ran() == call_progress::not_executed);
    CHECK(e.safe_to_repeat());
    CHECK(e.message().find("argument 1") != std::string::npos);
    CHECK(e.message().find("worker1") != std::string::npos);
    CHECK(e.message().find("no word today") != std::string::npos);
    CHECK(e.message().find("rref_resolved::length") != std::string::npos);
    const auto unmade = me.peer(1).remote<&fails_to_list>();
    const weft::error second = co_await thrown_by(me.peer(2).call<&say>("a", unmade));
    CHECK(second.message().find("argument 2") != std::string::npos);
    const weft::error kept = co_await thrown_by(me.peer(2).remote<&length>(none).to_here());
    CHECK(kept.message().find("no word today") != std::string::npos);
    CHECK(runs == 0);
    CHECK_THROWS_AS(static_cast<void>(me.peer(2).start<&length>(rref<std::string>())),
                    weft::rpc_error);
  });
}

TEST_CASE("resolved: who waits for an argument ends at the deadline, or when its caller gives up") {
  pure_everywhere(3, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    door().close();
    const rref<int> late = me.peer(1).remote<&behind_the_door>(1);
    runs = 0;
    const weft::error e = co_await thrown_by(me.peer(2).call<&add>(late, 1, weft::within(30ms)));
    CHECK(e == errc::timed_out);
    {
      const weft::future<int> given_up = me.peer(2).start<&add>(late, 2);
      CHECK(co_await eventually([&] { return waiting(all, 1) > 0; }));
    }
    CHECK(co_await eventually([&] { return waiting(all, 1) == 0; }));
    CHECK(runs == 0);
    door().open();
    CHECK(co_await me.peer(2).call<&add>(late, 3) == 4);
    CHECK(runs == 1);
  });
}

TEST_CASE("resolved: later calls pass one that waits for an argument") {
  run_pure(3, over::inproc, 0u, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    door().close();
    const rref<int> late = me.peer(1).remote<&behind_the_door>(1);
    weft::future<int> waits = me.peer(2).start<&add>(late, 1);
    CHECK(co_await me.peer(2).call<&add>(1, 1) == 2);
    CHECK_FALSE(waits.ready());
    door().open();
    CHECK(co_await std::move(waits) == 2);
  });
}

std::atomic<int> tries{0};
int third_time(int a) {
  if (++tries < 3) throw std::runtime_error("not yet");
  return a;
}
/// Answers too late, twice.
asio::awaitable<int> slow_twice(int a) {
  if (++tries < 3) co_await weft::sleep_for(10s);
  co_return a;
}
}  // namespace rref_resolved
template <>
inline constexpr bool weft::idempotent<&rref_resolved::slow_twice> = true;
namespace rref_resolved {

TEST_CASE("resolved: with retry, what may run again is repeated, and nothing else") {
  run_pure(3, over::tcp, 1u, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const rref<int> three = me.peer(1).remote<&whole>(3);
    runs = 0;
    CHECK(co_await me.peer(2).call<&add>(three, 4, weft::retry{}) == 7);
    CHECK(runs == 1);
    tries = 0;
    const weft::error e = co_await thrown_by(me.peer(2).call<&third_time>(three, weft::retry{}));
    CHECK(e.ran() == call_progress::executed);
    CHECK(tries == 1);
    tries = 0;
    CHECK(co_await me.peer(2).call<&slow_twice>(three, weft::retry{.each = 50ms}) == 3);
    CHECK(tries == 3);
  });
}

TEST_CASE("resolved: an empty reference that a peer sends is refused where it is read") {
  const weft::limits bounds;
  weft::message m(bounds);
  m.payload().number(std::uint8_t{1});            // it is a reference,
  m.payload().number(std::uint32_t{0xffffffff});  // an empty one
  weft::frame_header header;
  header.kind = weft::frame_kind::request;
  weft::incoming_message in(std::move(m).finish(header), bounds);
  weft::reader r = in.payload();
  CHECK_THROWS_AS(static_cast<void>(weft::codec<weft::detail::given_argument<int>>::decode(r)),
                  weft::rpc_error);
}

}  // namespace rref_resolved
