// SPDX-License-Identifier: BSL-1.0
// A service is asked about the messages that have something of it, and about no other.
#include <weft/core/call_scope.hpp>
#include <weft/core/event.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/awaitable.hpp>
#include <asio/use_awaitable.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <rpc/cluster_bodies.hpp>
#include <rref/gate.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace services_asked {

using namespace weft::testing;
using weft::worker;

/// What the workers' services were asked, all together.
struct counters {
  std::atomic<int> attach{0}, sent{0}, dropped{0}, arrive{0};
};
counters& seen() {
  static counters it;
  return it;
}
void forget() { seen().attach = seen().sent = seen().dropped = seen().arrive = 0; }

/// Of a message with a `flagged` in it.
struct flag final : weft::message_extension {
  static constexpr weft::service_id speaks_for = weft::service_id::reserved2;
};

/// Of a message that the `objector` does not let go.
struct objection final : weft::message_extension {
  static constexpr weft::service_id speaks_for = weft::service_id::reserved3;
};

/// Sends a section with each message that has a flag.
struct herald final : weft::service {
  static constexpr weft::service_id place = weft::service_id::reserved2;
  explicit herald(worker&) : service(place, {weft::section_kind::trace}) {}
  void attach(weft::link&, const weft::frame_header& h, weft::message& m) override {
    ++seen().attach;
    CHECK(m.record().find<flag>() != nullptr);
    const std::array<std::byte, 1> content{std::byte{h.kind == weft::frame_kind::request}};
    m.section(weft::section_kind::trace, content);
  }
  void sent(weft::link&, weft::message_extensions&) override { ++seen().sent; }
  void dropped(weft::link&, weft::message_extensions&) override { ++seen().dropped; }
  weft::expected<void> arrive(weft::link&, weft::incoming_message& m) override {
    ++seen().arrive;
    CHECK(m.section(weft::section_kind::trace));
    return {};
  }
};
/// It does not say about what it is to be asked.
struct silent final : weft::service {
  static constexpr weft::service_id place = weft::service_id::reserved3;
  explicit silent(worker&) {}
  void attach(weft::link&, const weft::frame_header&, weft::message&) override { ++asked(); }
  void sent(weft::link&, weft::message_extensions&) override { ++asked(); }
  weft::expected<void> arrive(weft::link&, weft::incoming_message&) override {
    ++asked();
    return {};
  }
  static std::atomic<int>& asked() {
    static std::atomic<int> it;
    return it;
  }
};

/// Asked behind the herald; lets no message with an objection go.
struct objector final : weft::service {
  static constexpr weft::service_id place = weft::service_id::reserved3;
  explicit objector(worker&) : service(place, {}) {}
  void attach(weft::link&, const weft::frame_header&, weft::message&) override {
    throw weft::rpc_error(weft::errc::not_encodable, "the objector objects");
  }
};

/// A value that has its message looked at by the herald.
struct flagged {
  std::int32_t value = 0;
  static constexpr std::string_view weft_structure = "services_asked::flagged 1";
  friend void weft_encode(weft::writer& w, const flagged& f) {
    static_cast<void>(w.record().get<flag>());
    w.number(f.value);
  }
  friend flagged weft_decode(weft::reader& r, std::type_identity<flagged>) {
    return {r.number<std::int32_t>()};
  }
};

/// One that the herald has attached something to when the objector refuses it.
struct refused {
  static constexpr std::string_view weft_structure = "services_asked::refused 1";
  friend void weft_encode(weft::writer& w, const refused&) {
    static_cast<void>(w.record().get<flag>());
    static_cast<void>(w.record().get<objection>());
  }
  friend refused weft_decode(weft::reader&, std::type_identity<refused>) { return {}; }
};

void never_called(refused) {}
int plain(int x) { return x; }
asio::awaitable<int> coroutine(int x) { co_return x; }
int takes(flagged f) { return f.value; }
asio::awaitable<flagged> gives(int x) { co_return flagged{x}; }
void throws() { throw std::runtime_error("a failure has no flag"); }

void from_one(const std::function<asio::awaitable<void>(worker&)>& main_) {
  for (const unsigned io_threads : io_ways()) {
    CAPTURE(io_threads);
    forget();
    silent::asked() = 0;
    cluster_with<herald, silent> workers(2, over::tcp, with_io_threads(io_threads));
    for (const auto& e : workers.run([&](worker& me) -> asio::awaitable<void> {
           if (me.rank() == 0) co_await main_(me);
         })) {
      CHECK_FALSE(e);
    }
    CHECK(silent::asked() == 0);
  }
}

TEST_CASE("services_asked: of calls without anything of theirs no service hears") {
  from_one([](worker& me) -> asio::awaitable<void> {
    const auto p = me.peer(1);
    co_await p.call<&plain>(1);
    co_await p.call<&coroutine>(1);
    p.post<&plain>(1);
    CHECK(co_await failure_of(p.call<&throws>(weft::as_expected)));
    CHECK(seen().attach + seen().sent + seen().dropped + seen().arrive == 0);
  });
}

TEST_CASE("services_asked: whose part a message has attaches to it, is told, and reads it there") {
  from_one([](worker& me) -> asio::awaitable<void> {
    const auto p = me.peer(1);
    const int taken = co_await p.call<&takes>(flagged{3});
    CHECK(taken == 3);
    CHECK(seen().attach == 1);  // the request, not its reply
    CHECK(seen().sent == 1);
    CHECK(seen().arrive == 1);
    const flagged given = co_await p.call<&gives>(4);
    CHECK(given.value == 4);
    CHECK(seen().attach == 2);  // the reply, not its request
    CHECK(seen().sent == 2);
    CHECK(seen().arrive == 2);
    CHECK(seen().dropped == 0);
  });
}

TEST_CASE("services_asked: what a service attached to a message that another refuses is dropped") {
  for (const unsigned io_threads : io_ways()) {
    CAPTURE(io_threads);
    forget();
    cluster_with<herald, objector> workers(2, over::tcp, with_io_threads(io_threads));
    for (const auto& e : workers.run([](worker& me) -> asio::awaitable<void> {
           if (me.rank() != 0) co_return;
           const auto p = me.peer(1);
           const auto why =
               co_await failure_of(p.call<&never_called>(refused{}, weft::as_expected));
           CHECK(why == weft::errc::not_encodable);
           CHECK(why.ran() == weft::call_progress::not_sent);
           CHECK(seen().attach == 1);
           CHECK(seen().dropped == 1);
           CHECK(seen().sent == 0);
           // The others go as before.
           const int taken = co_await p.call<&takes>(flagged{3});
           CHECK(taken == 3);
           CHECK(seen().sent == 1);
           CHECK(seen().dropped == 1);
         })) {
      INFO(e.message());
      CHECK_FALSE(e);
    }
  }
}

/// It owns frames of kind 40, and sends a section of its own and one that nobody reads.
struct courier final : weft::service {
  static constexpr weft::service_id place = weft::service_id::reserved2;
  static constexpr auto letters = static_cast<weft::frame_kind>(40);
  static constexpr auto its_own = static_cast<weft::section_kind>(0x8001);
  explicit courier(worker&) : service(place, {its_own}) {}
  [[nodiscard]] bool owns(weft::frame_kind kind) const noexcept override { return kind == letters; }
  void attach(weft::link&, const weft::frame_header&, weft::message& m) override {
    const std::array<std::byte, 3> content{};
    m.section(static_cast<weft::section_kind>(0xfff0), content);
    m.section(its_own, content);
  }
  weft::expected<void> arrive(weft::link&, weft::incoming_message& m) override {
    ++seen().arrive;
    CHECK(m.section(its_own)->size() == 3);
    return {};
  }
  weft::expected<void> frame(weft::link& from, weft::incoming_message& m) override {
    weft::reader r = m.payload();
    came() = came() * 10 + r.number<int>();
    r.finish();
    if (from.self().rank() == 1) send(from, 7);
    return {};
  }
  static void send(weft::link& to, int what, weft::frame_kind kind = letters) {
    weft::message m;
    m.payload().number(what);
    weft::frame_header h;
    h.kind = kind;
    if (to.append(std::move(m).finish(h))) to.flush();
  }
  static std::atomic<int>& came() {
    static std::atomic<int> it;
    return it;
  }
};

TEST_CASE("services_asked: a service that weft does not know has frames and sections of its own") {
  for (const unsigned io_threads : io_ways()) {
    CAPTURE(io_threads);
    forget();
    courier::came() = 0;
    cluster_with<courier> workers(2, over::tcp, with_io_threads(io_threads));
    for (const auto& e : workers.run([](worker& me) -> asio::awaitable<void> {
           if (me.rank() != 0) co_return;
           const auto p = me.peer(1);
           const int taken = co_await p.call<&takes>(flagged{3});
           CHECK(taken == 3);
           CHECK(seen().arrive == 1);
           courier::send(me.link_to(1), 4);
           CHECK(co_await eventually([] { return courier::came() == 47; }));
           const int plainly = co_await p.call<&plain>(1);
           CHECK(plainly == 1);
           CHECK(seen().arrive == 1);
         })) {
      INFO(e.message());
      CHECK_FALSE(e);
    }
  }
}

/// Ends by its cancellation only.
asio::awaitable<void> waits_for_ever() {
  co_await weft::event::async_wait(weft::make_intrusive<weft::event>(), asio::use_awaitable);
}

TEST_CASE("services_asked: a frame that no service owns ends the link") {
  cluster_with<courier> workers(2, over::tcp, with_io_threads(by_default));
  weft::error why;
  const auto ends = workers.run([&why](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    co_await me.peer(1).call<&plain>(1);
    courier::send(me.link_to(1), 4, static_cast<weft::frame_kind>(41));
    why = co_await failure_of(me.peer(1).call<&waits_for_ever>(weft::as_expected));
  });
  CHECK(why == weft::errc::peer_died);
  const std::string words = ends[1].message();
  INFO(words);
  CHECK(words.find("a frame of a service that this worker does not have") != std::string::npos);
}

}  // namespace services_asked
