// SPDX-License-Identifier: BSL-1.0
// Calls that fail: each with a typed error that names its cause, and the worker lives on.
#include <weft/core/event.hpp>
#include <weft/rpc/peer.hpp>

#include <atomic>
#include <core/bounded_wait.hpp>
#include <core/for_ever.hpp>
#include <rpc/cluster.hpp>
#include <rpc/let_go.hpp>
#include <rpc/raw_peer.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <transport/no_descriptors.hpp>
#include <vector>

namespace failing_calls {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::call_progress;
using weft::errc;
using weft::immediate;
using weft::origin;
using weft::within;
using weft::worker;

int add(int a, int b) { return a + b; }
int throws_std(int) { throw std::out_of_range("index 7 of 3"); }
immediate<int> throws_std_here(int) { throw std::out_of_range("index 7 of 3"); }
asio::awaitable<int> throws_std_later(int) {
  co_await asio::post(asio::use_awaitable);
  throw std::out_of_range("index 7 of 3");
}
struct strange {};
int throws_strange() { throw strange{}; }
asio::awaitable<int> throws_strange_later() {
  co_await asio::post(asio::use_awaitable);
  throw strange{};
}
void throws_in_void() { throw std::runtime_error("void, too"); }
asio::awaitable<int> fails_below(worker& me) { co_return co_await me.peer(0).call<&throws_std>(1); }
asio::awaitable<int> fails_two_below(worker& me) {
  co_return co_await me.peer(1 - me.rank()).call<&fails_below>();
}
int throws_generic() {
  throw std::system_error(std::make_error_code(std::errc::no_space_on_device));
}

asio::awaitable<void> check_remote(worker& me, weft::error e, std::string function) {
  CHECK(e == errc::remote_exception);
  CHECK(e.ran() == call_progress::executed);
  CHECK(e.detail().from == origin::remote_user);
  CHECK(e.detail().text == "index 7 of 3");
  CHECK(e.detail().remote_type == "std::out_of_range");
  CHECK(e.detail().peer == "worker1");
  CHECK(e.detail().function == function);
  const std::string text = e.message();
  CHECK(text.find("worker1") != std::string::npos);
  CHECK(text.find(function) != std::string::npos);
  CHECK(co_await me.peer(1).call<&add>(1, 1) == 2);  // it lives on
}

TEST_CASE("call: a function that throws gives remote_exception with type, text and place") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    const std::string ns = "failing_calls::";
    co_await check_remote(me, co_await failure_of(p.call<&throws_std>(1, as_expected)),
                          ns + "throws_std");
    co_await check_remote(me, co_await failure_of(p.call<&throws_std_here>(1, as_expected)),
                          ns + "throws_std_here");
    co_await check_remote(me, co_await failure_of(p.call<&throws_std_later>(1, as_expected)),
                          ns + "throws_std_later");
    for (const auto& e : {co_await failure_of(p.call<&throws_strange>(as_expected)),
                          co_await failure_of(p.call<&throws_strange_later>(as_expected))}) {
      CHECK(e == errc::remote_exception);
      CHECK(e.ran() == call_progress::executed);
      CHECK(e.message().find("not a std::exception") != std::string::npos);
    }
    CHECK(co_await failure_of(p.call<&throws_in_void>(as_expected)) == errc::remote_exception);
    CHECK(co_await failure_of(p.call<&throws_generic>(as_expected)) == errc::remote_exception);
    try {
      co_await p.call<&throws_std>(1);
      FAIL("nothing was thrown");
    } catch (const weft::rpc_error& e) {
      CHECK(e.error() == errc::remote_exception);
      CHECK(std::string(e.what()).find("index 7 of 3") != std::string::npos);
    }
    auto started = p.start<&throws_std>(1);
    try {
      co_await std::move(started);
      FAIL("nothing was thrown");
    } catch (const weft::rpc_error& e) {
      CHECK(e.error() == errc::remote_exception);
    }
  });
}

TEST_CASE("call: nested errors arrive as a chain of causes, each with its place") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto e = co_await failure_of(me.peer(1).call<&fails_below>(as_expected));
    CHECK(e == errc::remote_exception);
    CHECK(e.detail().peer == "worker1");
    const auto cause = e.cause();
    CHECK(cause == errc::remote_exception);
    CHECK(cause.detail().peer == "worker0");
    CHECK(cause.detail().remote_type == "std::out_of_range");
    CHECK(cause.detail().text == "index 7 of 3");
    const auto deep = co_await failure_of(me.peer(1).call<&fails_two_below>(as_expected));
    CHECK(deep.cause().cause().detail().remote_type == "std::out_of_range");
    CHECK(deep.message().find("caused by") != std::string::npos);
  });
}

/// A call of what is named by hand, with that payload.
asio::awaitable<weft::error> call_by_hand(worker& me, std::uint32_t to, std::uint64_t function,
                                          std::uint32_t signature,
                                          std::function<void(weft::message&)> write) {
  struct body final : weft::request_body {
    explicit body(std::function<void(weft::message&)> w) : write_(std::move(w)) {}
    void write(weft::message& m) const override { write_(m); }
    std::function<void(weft::message&)> write_;
  };
  weft::function_entry entry;
  entry.name = "by hand";
  entry.id = function;
  entry.signature = signature;
  weft::outgoing_call c(me.link_to(to), entry, {});
  const body b(std::move(write));
  const weft::call_result r = co_await me.link_to(to).send_later(c, b);
  co_return r.reply ? weft::error() : me.link_to(to).describe(r.failure, c);
}

// Names for calls that no program contains: the id is known, the function is not. The entry stays
// out of the table because nothing takes its address here.
asio::awaitable<weft::error> call_raw(worker& me, std::uint32_t to, std::uint64_t function,
                                      std::uint32_t signature) {
  const auto write = [](weft::message& m) {
    weft::codec<int>::encode(m.payload(), 1);
    weft::codec<int>::encode(m.payload(), 2);
  };
  co_return co_await call_by_hand(me, to, function, signature, write);
}

TEST_CASE("call: an unknown function, and one with another signature") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    using known = weft::function<&add>;
    CHECK_FALSE(co_await call_raw(me, 1, known::id(), known::signature));
    const auto unknown = co_await call_raw(me, 1, known::id() + 1, known::signature);
    CHECK(unknown == errc::unknown_function);
    CHECK(unknown.ran() == call_progress::not_executed);
    CHECK(unknown.detail().text.find(std::to_string(known::id() + 1)) != std::string::npos);
    const auto differing = co_await call_raw(me, 1, known::id(), known::signature + 1);
    CHECK(differing == errc::signature_mismatch);
    CHECK(differing.ran() == call_progress::not_executed);
    CHECK(differing.detail().text.find("failing_calls::add") != std::string::npos);
    CHECK(differing.detail().text.find(std::to_string(known::signature)) != std::string::npos);
    CHECK(differing.detail().text.find(std::to_string(known::signature + 1)) != std::string::npos);
    CHECK(co_await me.peer(1).call<&add>(1, 2) == 3);
  });
}

asio::awaitable<weft::error> send_bad_arguments(worker& me, std::uint32_t to) {
  using known = weft::function<&add>;
  const auto write = [](weft::message& m) {
    weft::codec<std::string>::encode(m.payload(), "not two numbers");
  };
  co_return co_await call_by_hand(me, to, known::id(), known::signature, write);
}

TEST_CASE("call: arguments that do not decode give bad_arguments, not executed") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto e = co_await send_bad_arguments(me, 1);
    CHECK(e == errc::bad_arguments);
    CHECK(e.ran() == call_progress::not_executed);
    CHECK(co_await me.peer(1).call<&add>(1, 2) == 3);
  });
}

TEST_CASE("worker: an unknown name or rank lists what there is, and nothing waits") {
  run_well(2, over::inproc, {}, [](worker& me) -> asio::awaitable<void> {
    try {
      static_cast<void>(me.peer("nobody"));
      FAIL("nothing was thrown");
    } catch (const weft::rpc_error& e) {
      CHECK(e.error() == errc::unknown_peer);
      const std::string text = e.what();
      CHECK(text.find("'nobody'") != std::string::npos);
      CHECK(text.find("worker0, worker1") != std::string::npos);
    }
    for (const int rank : {2, -1}) {
      try {
        static_cast<void>(me.peer(rank));
        FAIL("nothing was thrown");
      } catch (const weft::rpc_error& e) {
        CHECK(e.error() == errc::unknown_peer);
      }
    }
    co_return;
  });
}

std::string repeat(int size) { return std::string(static_cast<std::size_t>(size), 'x'); }
std::size_t length(const std::string& s) { return s.size(); }

TEST_CASE("call: an argument or a result beyond the payload's limit is a typed error") {
  weft::options o = with_io_threads(1);
  o.bounds.payload = 64 * 1024;
  run_well(2, over::tcp, o, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    const auto sent = co_await failure_of(p.call<&length>(repeat(70'000), as_expected));
    CHECK(sent == errc::message_too_large);
    CHECK(sent.ran() == call_progress::not_sent);
    const auto came = co_await failure_of(p.call<&repeat>(70'000, as_expected));
    CHECK(came == errc::message_too_large);
    CHECK(came.ran() == call_progress::executed);
    CHECK(co_await p.call<&length>(repeat(1000)) == 1000);
  });
}

weft::intrusive_ptr<weft::event> gate;  // made and used on the serving worker's thread
asio::awaitable<void> wait_at_gate() {
  if (!gate) gate = weft::make_intrusive<weft::event>();
  const auto mine = gate;
  co_await weft::event::async_wait(mine, asio::use_awaitable);
}
asio::awaitable<void> open_gate() {
  if (gate) std::exchange(gate, nullptr)->set();
  co_return;
}

TEST_CASE("outbox: full, start and post give too_many_calls, call waits for room") {
  // The peer is a listening socket that never answers, so that nothing leaves the outbox.
  for (const bool opens : {false, true}) {
    raw_listener silent;
    weft::options o = with_io_threads(0);
    o.outbox_frames = 8;
    o.handshake_deadline = 200s;
    cluster workers(2, over::tcp, o, 1);
    workers.members().members.change(2).addresses = {{"tcp", silent.endpoint()}};
    const auto ends = workers.run([&, opens](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 1) {  // ends by worker 1's report
        if (me.rank() == 0) {
          co_await for_ever();
        }
        co_return;
      }
      const auto p = me.peer(2);
      for (int i = 0; i < 8; ++i) p.post<&add>(i, 1);
      try {
        p.post<&add>(9, 1);
        FAIL("nothing was thrown");
      } catch (const weft::rpc_error& e) {
        CHECK(e.error() == errc::too_many_calls);
        CHECK(e.error().ran() == call_progress::not_sent);
        CHECK(std::string(e.what()).find("worker2") != std::string::npos);
        CHECK(e.error().detail().text ==
              "8 frames wait in the outbox, which is full (options.outbox_frames); a call that is "
              "awaited waits for room");
      }
      try {
        static_cast<void>(p.start<&add>(9, 1));
        FAIL("nothing was thrown");
      } catch (const weft::rpc_error& e) {
        CHECK(e.error() == errc::too_many_calls);
      }
      if (!opens) {
        const auto e = co_await failure_of(p.call<&add>(1, 2, within(30ms), as_expected));
        CHECK(e == errc::timed_out);
        CHECK(e.ran() == call_progress::not_sent);
        CHECK(e.message().find("no room") != std::string::npos);
        weft::error late;
        try {
          co_await p.room(within(30ms));
        } catch (const weft::rpc_error& thrown) {
          late = thrown.error();
        }
        CHECK(late == errc::timed_out);
        CHECK(late.ran() == call_progress::not_sent);
      } else {
        auto waits = [](weft::peer to) -> asio::awaitable<weft::error> {
          co_return co_await failure_of(to.call<&add>(1, 2, within(60s), as_expected));
        };
        auto waiting = me.spawn(waits(p));
        CHECK_FALSE(waiting.ready());
        // Now the peer answers the handshake, reads all, and closes.
        std::thread other([&, all = workers.members()]() mutable {
          auto peer = silent.accept();
          CHECK(peer.answer(all, 2));
          int requests = 0;
          while (requests < 9 && peer.read()) ++requests;
          CHECK(requests == 9);  // the ninth is the call that waited
        });
        const auto e = co_await std::move(waiting);
        other.join();
        CHECK(e == errc::peer_died);
        CHECK(e.ran() == call_progress::maybe_executed);
      }
      CHECK(co_await me.peer(0).call<&add>(1, 2) == 3);
      throw std::runtime_error("the test is over");
    });
    CHECK(ends[0].message().find("the test is over") != std::string::npos);
    CHECK(ends[1] == errc::worker_failed);
  }
}

TEST_CASE("window: too_many_calls says whose it is and how large") {
  weft::options o = with_io_threads(0);
  o.compute_threads = 1;
  o.window_bytes = 4096;
  cluster workers(2, over::tcp, o);
  weft::testing::set_windows(workers.members(), 4096);
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    let_go = false;
    CHECK(co_await me.peer(1).call<&add>(1, 2) == 3);  // the link is there
    std::vector<weft::future<void>> held;
    std::string why;
    for (int i = 0; i < 100 && why.empty(); ++i) {
      try {
        held.push_back(me.peer(1).start<&wait_to_be_let_go>());
        for (bounded_wait until("it is written"); until.not_yet(me.link_to(1).waiting() == 0);) {
          co_await asio::post(asio::use_awaitable);
        }
      } catch (const weft::rpc_error& e) {
        CHECK(e.error() == errc::too_many_calls);
        CHECK(e.error().ran() == call_progress::not_sent);
        why = e.error().detail().text;
      }
    }
    CHECK(why == "the window that the peer grants (4 KiB, its options.window_bytes) is full; a "
                 "call that is awaited waits for room");
    let_go = true;
    for (auto& f : held) co_await std::move(f);
  });
  for (const auto& e : ends) CHECK_FALSE(e);
}

TEST_CASE("call: a peer that dies ends waiting calls, and later ones at once") {
  raw_listener there;
  weft::options o = with_io_threads(1);
  cluster workers(2, over::tcp, o, 1);
  workers.members().members.change(2).addresses = {{"tcp", there.endpoint()}};
  std::thread dying([&, all = workers.members()]() mutable {
    auto peer = there.accept();
    CHECK(peer.answer(all, 2));
    CHECK(peer.read());  // one request, then it is gone
  });
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 0) {
      co_await for_ever();
    }
    const auto p = me.peer(2);
    auto started = p.start<&add>(5, 6);
    const auto e = co_await failure_of(p.call<&add>(1, 2, as_expected));
    CHECK(e == errc::peer_died);
    CHECK(e.ran() == call_progress::maybe_executed);
    CHECK(e.message().find("worker2") != std::string::npos);
    try {
      co_await std::move(started);
      FAIL("nothing was thrown");
    } catch (const weft::rpc_error& failure) {
      CHECK(failure.error() == errc::peer_died);
    }
    // Many in a row: each fails by itself, without nesting.
    for (int i = 0; i < 20'000; ++i) {
      const auto again = co_await failure_of(p.call<&add>(1, 2, as_expected));
      if (again != errc::peer_died || again.ran() != call_progress::not_sent) {
        FAIL_CHECK(again.message());
        break;
      }
    }
    CHECK_THROWS_AS(p.post<&add>(1, 2), weft::rpc_error);
    CHECK(co_await me.peer(0).call<&add>(1, 2) == 3);
    throw std::runtime_error("the test is over");
  });
  dying.join();
  CHECK(ends[1] == errc::worker_failed);
}

TEST_CASE("call: a refused connection is tried again until the deadline, and is no death") {
  for (const unsigned io_threads : io_ways()) {
    cluster workers(2, over::tcp, with_io_threads(io_threads), 2);
    std::string endpoint;
    {
      const raw_listener gone;
      endpoint = gone.endpoint();
      workers.members().members.change(2).addresses = {{"tcp", gone.endpoint()}};
    }
    workers.members().members.change(3).addresses = {{"carrier pigeon", "loft 3"}};
    const auto ends = workers.run([&](worker& me) -> asio::awaitable<void> {
      if (me.rank() == 0) {
        co_await for_ever();
      }
      for (int i = 0; i < 2; ++i) {
        const auto late =
            co_await failure_of(me.peer(2).call<&add>(1, 2, within(300ms), as_expected));
        CHECK(late == errc::timed_out);
        CHECK(late.ran() == call_progress::not_sent);
        CHECK(late.message().find(endpoint) != std::string::npos);  // what it waited for
      }
      CHECK(me.link_to(2).waiting() == 0);  // nothing of them is left
      const auto apart = co_await failure_of(me.peer(3).call<&add>(1, 2, as_expected));
      CHECK(apart == errc::no_common_transport);
      CHECK(apart.ran() == call_progress::not_sent);
      CHECK(apart.message().find("worker3") != std::string::npos);
      throw std::runtime_error("the test is over");
    });
    CHECK(ends[1] == errc::worker_failed);
  }
}

#ifndef WEFT_TEST_SANITIZED
TEST_CASE("call: what lacks descriptors is tried again until the deadline, and is no death") {
  for (const over how : {over::tcp, over::unix_socket}) {
    for (const unsigned io_threads : io_ways()) {
      CAPTURE(name_of(how));
      CAPTURE(io_threads);
      run_well(3, how, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
        if (me.rank() != 1) co_return;
        CHECK(co_await me.peer(0).call<&add>(1, 2) == 3);
        const auto p = me.peer(2);
        weft::future<int> later;
        {
          const no_descriptors shortage;
          const auto late = co_await failure_of(p.call<&add>(1, 2, within(300ms), as_expected));
          CHECK(late == errc::timed_out);
          CHECK(late.ran() == call_progress::not_sent);
          CHECK(late.message().find("Too many open files") != std::string::npos);
          CHECK(co_await me.peer(0).call<&add>(1, 2) == 3);  // other links do not care
          later = p.start<&add>(20, 22);
          static_cast<void>(
              co_await failure_of(p.call<&add>(1, 2, within(50ms), as_expected)));  // meanwhile
        }
        CHECK(co_await std::move(later) == 42);
      });
    }
  }
}
#endif

TEST_CASE("call: a peer that begins to listen later is reached") {
  raw_listener there;
  cluster workers(2, over::tcp, with_io_threads(1), 1);
  workers.members().members.change(2).addresses = {{"tcp", there.endpoint()}};
  // It lets the first connections fall, as one does that has no descriptors left, then answers.
  std::thread other([&, all = workers.members()] {
    for (int i = 0; i < 3; ++i) static_cast<void>(there.accept());
    auto peer = there.accept();
    CHECK(peer.answer(all, 2));
    const auto asked = peer.read();
    REQUIRE(asked);
    weft::message m;
    weft::codec<int>::encode(m.payload(), 3);
    weft::frame_header h;
    h.kind = weft::frame_kind::reply;
    h.call = asked->header.call;
    peer.send(std::move(m).finish(h));
    static_cast<void>(peer.read_all());
  });
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 0) {
      co_await for_ever();
    }
    CHECK(co_await me.peer(2).call<&add>(1, 2) == 3);
    throw std::runtime_error("the test is over");
  });
  other.join();
  CHECK(ends[1] == errc::worker_failed);
}

}  // namespace failing_calls
