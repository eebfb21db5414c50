// SPDX-License-Identifier: BSL-1.0
// Streams between a function and its caller.
#include "objects.hpp"
#include <weft/rref/stream.hpp>

#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace rref_tests {

using weft::errc;
using weft::sink;
using weft::stream;
using weft::within;

/// What functions here tell the test, in one process.
struct seen_streams {
  std::atomic<int> written{0}, ended{0};
  std::atomic<bool> waits{false};
};
seen_streams seen;

asio::awaitable<void> count_up(int n, std::uint64_t window, sink<int> out) {
  struct at_end {
    ~at_end() { ++seen.ended; }
  } const ends;
  out.set_window(window);
  for (int i = 0; i < n; ++i) {
    co_await out.write(i);
    ++seen.written;
  }
}
asio::awaitable<void> doubled(stream<int> in, int by, sink<long> out) {
  // bounded: by the writer
  while (const auto x = co_await in.next()) co_await out.write(long{*x} * by);
}
asio::awaitable<void> sum_up(stream<int> in, sink<int> out) {
  int sum = 0;
  // bounded: by the writer
  while (const auto x = co_await in.next()) sum += *x;
  co_await out.write(sum);
}
asio::awaitable<void> write_and_throw(int n, sink<int> out) {
  for (int i = 0; i < n; ++i) co_await out.write(i);
  throw std::runtime_error("no more ink");
}
asio::awaitable<void> tensors(int n, std::int64_t size, sink<at::Tensor> out) {
  for (int i = 0; i < n; ++i) {
    co_await out.write(at::full({size}, i, at::kFloat).set_requires_grad(true));
    ++seen.written;
  }
}
asio::awaitable<void> probes(worker& me, sink<rref<probe>> out) {
  for (int i = 0; i < 3; ++i) co_await out.write(me.share(probe(i)));
}
asio::awaitable<void> take(int n, stream<int> in) {
  for (int i = 0; i < n; ++i) static_cast<void>(co_await in.next());
}
asio::awaitable<void> read_all(stream<int> in) {
  std::string said = "the end";
  try {
    // bounded: by the writer
    while (co_await in.next()) {
    }
  } catch (const weft::rpc_error& e) {
    said = e.error().detail().text;
  }
  throw std::runtime_error("heard: " + said);
}
asio::awaitable<void> silent(sink<int>) {
  seen.waits = true;
  struct at_end {
    ~at_end() { ++seen.ended; }
  } const ends;
  co_await asio::post(asio::use_awaitable);
  const auto nobody_sets_it = weft::make_intrusive<weft::event>();
  co_await weft::event::wait(nobody_sets_it);
}

TEST_CASE("stream: items in order, at the caller, at the callee, and both at once") {
  for (const auto how : {over::inproc, over::unix_socket, over::tcp}) {
    CAPTURE(name_of(how));
    run_workers(2, how, with_io_threads(1), [](workers&, worker& me) -> asio::awaitable<void> {
      auto [in] = co_await me.peer(1).open<&count_up>(1000, 64);
      for (int i = 0; i < 1000; ++i) {
        const auto x = co_await in.next();
        REQUIRE(x);
        REQUIRE(*x == i);
      }
      CHECK_FALSE(co_await in.next());
      CHECK_FALSE(co_await in.next());

      auto [to, from] = co_await me.peer(1).open<&doubled>(3);
      auto writes = me.spawn([](sink<int> out) -> asio::awaitable<void> {
        for (int i = 0; i < 500; ++i) co_await out.write(i);
        co_await out.finish();
      }(std::move(to)));
      for (int i = 0; i < 500; ++i) REQUIRE(*(co_await from.next()) == 3L * i);
      CHECK_FALSE(co_await from.next());
      co_await std::move(writes);
      // Half closed: the answer comes behind the end of the other direction. Also to itself.
      for (const int to_whom : {1, 0}) {
        auto [numbers, sum] = co_await me.peer(to_whom).open<&sum_up>();
        for (int i = 0; i < 200; ++i) co_await numbers.write(i);
        co_await numbers.finish();
        CHECK((co_await thrown_by(numbers.write(1))) == errc::invalid_argument);
        CHECK(*(co_await sum.next()) == 19900);
        CHECK_FALSE(co_await sum.next());
      }
    });
  }
}

std::atomic<int> taken_in_all{0};
/// Works on after the end.
asio::awaitable<void> take_all_slowly(stream<int> in, std::string throws) {
  // bounded: by the writer
  while (co_await in.next()) {
    co_await weft::sleep_for(1ms);
    ++taken_in_all;
  }
  co_await weft::sleep_for(5ms);
  ++taken_in_all;
  if (!throws.empty()) throw std::runtime_error(throws);
}
asio::awaitable<void> take_both(stream<int> a, stream<int> b) {
  // bounded: by the writer
  while (co_await a.next()) ++taken_in_all;
  // bounded: by the writer
  while (co_await b.next()) ++taken_in_all;
  ++taken_in_all;
}

TEST_CASE("stream: finish hears what a function that only reads ends with") {
  for (const auto how : {over::inproc, over::tcp}) {
    CAPTURE(name_of(how));
    run_workers(2, how, with_io_threads(1), [](workers&, worker& me) -> asio::awaitable<void> {
      const weft::peer p = me.peer(1);
      taken_in_all = 0;
      {  // what was written is taken, though the end is dropped at once
        auto [out] = co_await p.open<&take_all_slowly>("");
        for (int i = 0; i < 20; ++i) co_await out.write(i);
        co_await out.finish();
      }
      CHECK(taken_in_all == 21);
      {
        auto [out] = co_await p.open<&take_all_slowly>("could not save");
        co_await out.write(1);
        const weft::error why = co_await thrown_by(out.finish());
        CHECK(why == errc::remote_exception);
        CHECK(why.message().find("could not save") != std::string::npos);
      }
      {  // the wait ends at its limit, and can be begun again
        auto [out] = co_await p.open<&take_all_slowly>("");
        for (int i = 0; i < 30; ++i) co_await out.write(i);
        const weft::error why = co_await thrown_by(out.finish(within(1ms)));
        CHECK(why == errc::timed_out);
        CHECK(why.message().find("rref_tests::take_all_slowly") != std::string::npos);
        CHECK((co_await thrown_by(out.write(1))) == errc::invalid_argument);
        co_await out.finish();
      }
      taken_in_all = 0;
      {  // the first of several does not wait for what the function reads from the second
        auto [a, b] = co_await p.open<&take_both>();
        co_await a.write(1);
        co_await a.finish();
        co_await b.write(2);
        co_await b.finish();
      }
      CHECK(taken_in_all == 3);
    });
  }
}

TEST_CASE("stream: finish says whether a function that has returned took all items") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    for (const int more : {0, 1}) {
      for (const bool late : {false, true}) {
        CAPTURE(more);
        CAPTURE(late);
        auto [out] = co_await p.open<&take>(3);
        for (int i = 0; i < 3 + more; ++i) co_await out.write(i);
        if (late) co_await weft::sleep_for(20ms);
        const weft::error why = co_await thrown_by(out.finish());
        INFO(why.message());
        CHECK((more == 0 ? !why : why == errc::closed));
      }
    }
  });
}

TEST_CASE("stream: errors speak of the stream") {
  auto goes_on = with_io_threads(0);
  goes_on.on_loss = weft::loss_policy::go_on();
  run_workers(2, over::inproc, goes_on, [&](workers& all, worker& me) -> asio::awaitable<void> {
    const weft::peer p = me.peer(1);
    all.at(0).link_to(1).mark_down(weft::error(errc::peer_died, "pulled"));
    auto [out] = co_await p.open<&take>(3);
    const weft::error why = co_await thrown_by(out.write(1));
    INFO(why.message());
    CHECK(why == errc::peer_died);
    CHECK(why.message().starts_with("call of 'rref_tests::take' on worker 'worker1': peer died"));
  });
}

TEST_CASE("stream: a slow reader holds back its writer, by items and by bytes, and nobody else") {
  for (const auto how : {over::inproc, over::tcp}) {
    run_workers(2, how, with_io_threads(1), [](workers&, worker& me) -> asio::awaitable<void> {
      for (const int window : {64, 2}) {  // it may be narrower
        seen.written = 0;
        auto [in] = co_await me.peer(1).open<&count_up>(300, window);
        CHECK(co_await eventually([&] { return seen.written >= window; }));
        for (int i = 0; i < 300; ++i) {
          REQUIRE(*(co_await in.next()) == i);
          REQUIRE(seen.written <= i + 1 + window);
        }
        CHECK_FALSE(co_await in.next());
      }
      seen.written = 0;
      auto [big] = co_await me.peer(1).open<&tensors>(40, 1 << 18);  // 1 MiB each
      CHECK(co_await eventually([] { return seen.written >= 4; }));
      auto [other] = co_await me.peer(1).open<&count_up>(10, 64);
      for (int i = 0; i < 10; ++i) REQUIRE(*(co_await other.next()) == i);
      for (int i = 0; i < 40; ++i) {
        const auto t = co_await big.next();
        REQUIRE(t);
        REQUIRE(t->numel() == 1 << 18);
        REQUIRE((*t)[0].item<float>() == static_cast<float>(i));
        REQUIRE_FALSE(t->requires_grad());
      }
      CHECK_FALSE(co_await big.next());
    });
  }
}

TEST_CASE("stream: references are items, and objects live as long as they") {
  record::of_all().reset();
  run_workers(2, over::tcp, with_io_threads(0), [](workers&, worker& me) -> asio::awaitable<void> {
    auto [in] = co_await me.peer(1).open<&probes>();
    std::vector<rref<probe>> all;
    // bounded: by the writer
    while (auto p = co_await in.next()) all.push_back(std::move(*p));
    REQUIRE(all.size() == 3);
    CHECK(co_await all[2].call<&probe::value>() == 2);
    // Nobody reads these.
    auto [unread] = co_await me.peer(1).open<&probes>();
    CHECK(co_await eventually([] { return record::of_all().made >= 6; }));
  });
  CHECK(record::of_all().made == record::of_all().destroyed);
}

/// An object with streams.
struct shelf_of_numbers {
  int next = 0;
  asio::awaitable<void> some(int n, sink<int> out) {
    for (int i = 0; i < n; ++i) co_await out.write(next++);
  }
};

TEST_CASE("stream: of an object that is being made, and several at once") {
  run_workers(2, over::tcp, with_io_threads(0), [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<shelf_of_numbers>();
    auto [one] = co_await there.open<&shelf_of_numbers::some>(300);
    auto [two] = co_await there.open<&shelf_of_numbers::some>(300);
    std::vector<int> all;
    for (int i = 0; i < 300; ++i) {
      all.push_back(*(co_await one.next()));
      all.push_back(*(co_await two.next()));
    }
    CHECK_FALSE(co_await one.next());
    CHECK_FALSE(co_await two.next());
    std::sort(all.begin(), all.end());
    for (int i = 0; i < 600; ++i) REQUIRE(all[static_cast<std::size_t>(i)] == i);
  });
}

TEST_CASE("stream: what a function throws comes behind its items") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto [in] = co_await me.peer(1).open<&write_and_throw>(30);
    for (int i = 0; i < 30; ++i) REQUIRE(*(co_await in.next()) == i);
    for (int i = 0; i < 2; ++i) {
      const auto e = co_await thrown_by(in.next());
      CHECK(e == errc::remote_exception);
      CHECK(e.message().find("no more ink") != std::string::npos);
    }
  });
}

TEST_CASE("stream: an end that is dropped tells the other one") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    // The reader at the callee stops early, or reads to the end.
    auto [some] = co_await me.peer(1).open<&take>(3);
    const auto all = [&]() -> asio::awaitable<void> {
      for (int i = 0; i < 10000; ++i) co_await some.write(i);
    };
    CHECK((co_await thrown_by(all())) == errc::closed);

    // The writer at the caller drops its end unfinished: the other end of the call lives on.
    auto [to, from] = co_await me.peer(1).open<&sum_up>();
    co_await to.write(7);
    to = {};
    const auto e = co_await thrown_by(from.next());
    CHECK(e.message().find("dropped the stream before it had finished") != std::string::npos);

    // The only end is dropped: the function is cancelled.
    seen.ended = 0;
    seen.waits = false;
    {
      auto [quiet] = co_await me.peer(1).open<&silent>();
      CHECK(co_await eventually([] { return seen.waits.load(); }));
    }
    CHECK(co_await eventually([] { return seen.ended == 1; }));
    seen.ended = 0;
    {
      auto [endless] = co_await me.peer(1).open<&count_up>(1 << 30, 64);
      static_cast<void>(co_await endless.next());
    }
    CHECK(co_await eventually([] { return seen.ended == 1; }));
  });
}

TEST_CASE("stream: waits end at their deadline, and the stream at its own") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto [to, from] = co_await me.peer(1).open<&doubled>(2);
    CHECK((co_await thrown_by(from.next(within(5ms)))) == errc::timed_out);
    co_await to.write(4);
    CHECK(*(co_await from.next()) == 8);  // nothing was lost
    // Nobody reads the doubled ones, so in the end nothing is taken here.
    int written = 0;
    weft::error late;
    for (int i = 0; i < 1000 && !late; ++i) {
      late = co_await thrown_by(to.write(written, within(200ms)));
      written += late ? 0 : 1;
    }
    CHECK(late == errc::timed_out);
    CHECK(written >= 64);
    CHECK(written <= 64 + 64 + 2);
    int sum = 0, expected = 0;
    for (int i = 0; i < written; ++i) {
      sum += static_cast<int>(*(co_await from.next()));
      expected += 2 * i;
    }
    CHECK(sum == expected);

    auto [quiet] = co_await me.peer(1).open<&silent>(within(30ms));
    CHECK((co_await thrown_by(quiet.next())) == errc::timed_out);
  });
}

TEST_CASE("stream: a wait that is cancelled takes no item") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto [to, from] = co_await me.peer(1).open<&doubled>(1);
    {
      auto given_up = me.spawn(from.next());
      co_await asio::post(asio::use_awaitable);
    }
    for (int i = 0; i < 20; ++i) {
      co_await to.write(i);
      REQUIRE(*(co_await from.next()) == i);
    }
    co_await to.finish();
    CHECK_FALSE(co_await from.next());
  });
}

TEST_CASE("stream: a lost peer ends both ends, behind what has come") {
  auto goes_on = with_io_threads(0);
  goes_on.on_loss = weft::loss_policy::go_on();
  for (const bool while_writing : {false, true}) {
    CAPTURE(while_writing);
    run_workers(2, over::inproc, goes_on, [&](workers& all, worker& me) -> asio::awaitable<void> {
      seen.waits = false;
      seen.ended = 0;
      auto [to, from] = co_await me.peer(1).open<&doubled>(1);
      auto [quiet] = co_await me.peer(1).open<&silent>();
      co_await to.write(1);
      CHECK(*(co_await from.next()) == 1);
      CHECK(co_await eventually([] { return seen.waits.load(); }));
      const auto fills = [&]() -> asio::awaitable<void> {
        for (int i = 0; i < 100000; ++i) co_await to.write(i);
      };
      auto ended = me.spawn(thrown_by(while_writing ? fills() : [&]() -> asio::awaitable<void> {
        static_cast<void>(co_await from.next());
      }()));
      auto second = me.spawn(thrown_by(quiet.next()));
      for (int i = 0; i < 10; ++i) co_await asio::post(asio::use_awaitable);
      all.at(0).link_to(1).mark_down(weft::error(errc::peer_died, "pulled"));
      const auto e = co_await std::move(ended);
      CAPTURE(e.message());
      CHECK((e == errc::peer_died || e == errc::rref_owner_died));
      CHECK((co_await std::move(second)) == errc::peer_died);
      CHECK(co_await eventually([] { return seen.ended == 1; }));
    });
  }
}

/// Its third cannot be read.
struct fragile_item {
  int value = 0;
};
void weft_encode(weft::writer& w, const fragile_item& x) { w.number(x.value); }
fragile_item weft_decode(weft::reader& r, std::type_identity<fragile_item>) {
  const int value = r.number<int>();
  if (value == 2) r.fail("it is torn");
  return {value};
}
asio::awaitable<void> fragile_items(int n, sink<fragile_item> out) {
  for (int i = 0; i < n; ++i) co_await out.write({i});
}

TEST_CASE("stream: an item that cannot be read ends the stream behind those before it") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    for (const int n : {3, 10, 500}) {
      CAPTURE(n);
      auto [in] = co_await me.peer(1).open<&fragile_items>(n);
      for (int i = 0; i < 2; ++i) REQUIRE((co_await in.next())->value == i);
      const auto e = co_await thrown_by(in.next());
      CHECK(e == errc::bad_arguments);
      CHECK(e.message().find("item 2 of a stream did not arrive") != std::string::npos);
    }
  });
}

TEST_CASE("stream: mistakes are refused in a sentence") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    sink<int> none;
    stream<int> nothing;
    CHECK((co_await thrown_by(none.write(1))) == errc::invalid_argument);
    CHECK((co_await thrown_by(none.finish())) == errc::invalid_argument);
    CHECK((co_await thrown_by(nothing.next())) == errc::invalid_argument);
    // An end that is open cannot be sent on.
    auto [in] = co_await me.peer(1).open<&count_up>(3, 64);
    const auto e = co_await thrown_by(me.peer(1).call<&read_all>(stream<int>()));
    CHECK(e == errc::not_encodable);
  });
}

// ── the state ──

using weft::detail::stream_credit;
using weft::detail::stream_progress;
using weft::detail::stream_window;

TEST_CASE("stream state: the window is kept, and every item is credited once") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    stream_credit writer;
    stream_progress reader;
    std::deque<std::uint64_t> way, here;
    std::uint64_t sent = 0, asked = 0;
    bool asks = false;
    for (int step = 0; step < 2000; ++step) {
      switch (random() % 4) {
      case 0: {
        if (writer.full()) break;
        CHECK(way.size() + here.size() < stream_window::items);
        const std::uint64_t size = random() % 3 == 0 ? random() % (8u << 20) : random() % 2000;
        writer.sent(size);
        way.push_back(size);
        ++sent;
        break;
      }
      case 1:
        if (way.empty()) break;
        REQUIRE_FALSE(reader.came(reader.came(), way.front()));
        here.push_back(way.front());
        way.pop_front();
        break;
      case 2:
        if (here.empty()) break;
        reader.took(here.front());
        here.pop_front();
        break;
      default:
        if (!asks && (writer.full() || writer.is_worth_asking())) {
          asks = true;
          asked = writer.to_ask_for();
          CHECK(asked <= sent);
        }
        if (asks && reader.taken() >= asked) {
          asks = false;
          REQUIRE(writer.taken(reader.taken()));
        }
      }
    }
    // Whatever is on its way, a writer that is full and asks gets on.
    for (const std::uint64_t size : way) {
      REQUIRE_FALSE(reader.came(reader.came(), size));
      here.push_back(size);
    }
    for (const std::uint64_t size : here) reader.took(size);
    CHECK(reader.taken() == sent);
    CHECK(writer.taken(sent));
    CHECK_FALSE(writer.full());
    CHECK_FALSE(writer.taken(sent + 1));
  }
}

TEST_CASE("stream state: more than the window, and items behind the end, are refused") {
  stream_progress many;
  for (std::uint64_t i = 0; i < stream_window::items; ++i) REQUIRE_FALSE(many.came(i, 1));
  CHECK(many.came(stream_window::items, 1) == errc::protocol_error);
  stream_progress large;
  REQUIRE_FALSE(large.came(0, 2 * stream_window::bytes));
  CHECK(large.came(1, 1) == errc::protocol_error);
  stream_progress over;
  over.ended(true);
  CHECK(over.came(0, 1) == errc::protocol_error);
  stream_progress closed;
  closed.close();
  CHECK(closed.came(0, 1) == errc::closed);
}

TEST_CASE(
    "stream state: an item that did not arrive is missed by the next, the end, and who asks") {
  stream_progress next;
  REQUIRE_FALSE(next.came(0, 1));
  CHECK(next.came(2, 1) == errc::bad_arguments);
  stream_progress end;
  REQUIRE_FALSE(end.came(0, 1));
  end.ended(true, 2);
  CHECK(end.failure(true) == errc::bad_arguments);
  CHECK_FALSE(end.waits(true));
  CHECK_FALSE(end.all_came(1));
  CHECK(end.all_came(2) == errc::bad_arguments);
}

TEST_CASE("stream state: a writer that is lost before it told the end did not end well") {
  for (const bool gone_first : {false, true}) {
    CAPTURE(gone_first);
    stream_progress p;  // of a caller: its call has returned, and the last items have not come
    REQUIRE_FALSE(p.came(0, 1));
    if (gone_first) p.gone();
    p.call_ended({});
    if (!gone_first) p.gone();
    CHECK_FALSE(p.waits(true));
    CHECK(p.failure(true) == errc::peer_died);
  }
  stream_progress told;
  REQUIRE_FALSE(told.came(0, 1));
  told.ended(false, 1);
  told.gone();
  told.call_ended({});
  CHECK_FALSE(told.failure(true));
}

TEST_CASE("stream state: every order of end, drop and outcome of the call") {
  const weft::error broken(errc::remote_exception, "broken");
  // What happens, in every order of which each comes once: the writer ends (finished or not), the
  // call ends (well or not).
  for (const bool hears : {false, true}) {
    for (const bool finished : {false, true}) {
      for (const bool well : {false, true}) {
        for (const bool end_first : {false, true}) {
          CAPTURE(hears);
          CAPTURE(finished);
          CAPTURE(well);
          CAPTURE(end_first);
          stream_progress p;
          const auto end = [&] { p.ended(finished); };
          const auto call = [&] {
            if (hears) p.call_ended(well ? weft::error() : broken);
          };
          CHECK(p.waits(hears));
          end_first ? end() : call();
          if (end_first && finished) CHECK_FALSE(p.waits(hears));
          if (end_first && !finished) CHECK(p.waits(hears) == hears);
          if (!end_first && hears) CHECK(p.waits(hears) == well);
          end_first ? call() : end();
          CHECK_FALSE(p.waits(hears));
          const weft::error why = p.failure(hears);
          if (hears) {
            CHECK(static_cast<bool>(why) == !well);
          } else {
            CHECK(static_cast<bool>(why) == !finished);
            if (why) CHECK(why == errc::cancelled);
          }
        }
      }
    }
  }
}

}  // namespace rref_tests
