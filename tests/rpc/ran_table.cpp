// SPDX-License-Identifier: BSL-1.0
// Every way for a call to fail: its code, how far it says that it got, and what the callee did.
//
//   not_sent, not_executed: nothing     executed: ran once     maybe_executed: as it was arranged
//
// Counted when the run is over: it serves all that was sent, so what was not taken back has run.
#include <weft/core/event.hpp>
#include <weft/rpc/peer.hpp>

#include <core/error_of.hpp>
#include <core/for_ever.hpp>
#include <rpc/engine_link.hpp>
#include <rpc/live_abandoned.hpp>
#include <rpc/raw_peer.hpp>
#include <span>

namespace ran_table {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::error;
using weft::frame_kind;
using weft::future;
using weft::within;
using weft::worker;
using enum weft::errc;
using enum weft::call_progress;

enum class breaks : std::uint8_t { nowhere, encoding, decoding, reading };
/// A value whose codec throws where it is told to.
struct fragile {
  breaks where;
};
}  // namespace ran_table

template <>
struct weft::codec<ran_table::fragile> {
  static constexpr std::size_t min_size = 1;
  static void encode(writer& w, const ran_table::fragile& v) {
    if (v.where == ran_table::breaks::encoding) throw std::out_of_range("not to be written");
    w.number(v.where);
  }
  static ran_table::fragile decode(reader& r) {
    const auto where = static_cast<ran_table::breaks>(r.number<std::uint8_t>());
    if (where == ran_table::breaks::decoding) throw std::out_of_range("not to be read");
    if (where == ran_table::breaks::reading) r.fail("refused");
    return {where};
  }
};
template <>
struct weft::structure<ran_table::fragile> {
  static constexpr std::string_view tag = "ran_table::fragile 1";
};

namespace ran_table {

std::atomic<int> times{0};  // that a function ran
int count() { return ++times; }
int count_fragile(fragile) { return ++times; }
asio::awaitable<int> count_text(std::string) { co_return ++times; }
std::string give_text(std::size_t size) { return ++times, std::string(size, 'x'); }
fragile give(breaks where) { return ++times, fragile{where}; }
int throws() { throw std::out_of_range(std::to_string(++times)); }
int lacks_memory() { return ++times > 0 ? throw std::bad_alloc() : 0; }
int stops() { return ++times > 0 ? throw std::system_error(asio::error::operation_aborted) : 0; }
/// What it reads is not its call's arguments.
int reads_too_far() {
  weft::message_extensions record;
  return ++times, weft::reader({}, record).number<int>();
}
asio::awaitable<int> turn() { co_return 0; }
asio::awaitable<int> calls_too_late(worker& me) {
  ++times;
  co_return co_await me.peer(0).call<&turn>(within(0ms));
}
asio::awaitable<int> wait() {
  co_await for_ever();
  co_return 0;
}
asio::awaitable<int> count_and_wait() {
  ++times;
  co_return co_await wait();
}
std::atomic<int> held{0};
std::atomic<bool> let_go{false};
/// Keeps the callee's only pool thread; `hold_thread` its own.
int hold() {
  ++held;
  until("the test lets it go", [] { return let_go.load(); });
  return 0;
}
asio::awaitable<int> hold_thread() { co_return hold(); }
int count_and_hold() { return ++times, hold(); }
int take(std::string) { return 0; }

/// A silent one answers no connection, but may make one.
enum class callee_is : std::uint8_t { there, silent };

/// Worker 2 calls worker 1.
class scene {
 public:
  scene(callee_is callee, over how, const weft::options& o) : all_(3, how, o) {
    times = held = 0;
    let_go = false;
    weft::testing::set_windows(all_.members(), o.window_bytes);
    if (callee == callee_is::silent) {
      all_.members().members.change(1).addresses = {{"tcp", listener_.endpoint()}};
    }
    all_.start([done = done_](worker&) -> asio::awaitable<void> {
      co_await weft::event::async_wait(done, asio::use_awaitable);
    });
    if (callee == callee_is::there) in_turn();
  }
  ~scene() {
    let_go = true;
    done_->set();
  }
  [[nodiscard]] worker& caller() { return all_.at(2); }
  [[nodiscard]] worker& callee() { return all_.at(1); }
  [[nodiscard]] weft::peer there() { return caller().peer(1); }
  [[nodiscard]] weft::engine::link& way() { return engine_link(caller(), 1); }

  template <auto F, class... Args>
  error call(Args... args) {
    return result_on(caller(), failure_of(there().call<F>(args..., weft::as_expected)));
  }
  /// Begun, and so far that `so_far()`.
  template <auto F>
  future<int> begin(const char* what, const std::function<bool()>& so_far) {
    auto f = on(caller(), [this] { return caller().spawn(there().call<F>()); });
    until(what, so_far);
    return f;
  }
  /// Comes back behind all that was sent before, cancellations too.
  void in_turn() { static_cast<void>(result_on(caller(), there().call<&turn>())); }
  /// Makes the link to a silent callee: what is left in the outbox arrives.
  void call_back() { static_cast<void>(result_on(callee(), callee().peer(2).call<&turn>())); }

  // What a call waits for ...
  future<int> result() {
    return begin<&count_and_wait>("it runs", [] { return times == 1; });
  }
  future<int> pool() {
    hold_pool();
    return begin<&count>("it is written", [this] { return way().waiting() == 0; });
  }
  future<int> room() {
    fill_window();
    return begin<&count>("it waits in line", [this] { return way().has_waiters(); });
  }
  future<int> socket() {
    fill_socket();
    return begin<&count>("it is in the outbox", [this] { return way().waiting() == 2; });
  }
  future<int> connection() {
    return begin<&count>("it is in the outbox", [this] { return way().waiting() == 1; });
  }
  void hold_pool() {
    others_.push_back(begin<&hold>("the pool is held", [] { return held == 1; }));
  }
  /// The second of two requests waits for the pool, so there is no room for a third.
  void fill_window() {
    hold_pool();
    const auto all = way().requests.sent + 1;
    others_.push_back(begin<&hold>("it is sent", [=, this] { return way().requests.sent == all; }));
  }
  /// With a frame that the callee does not read to its end.
  void fill_socket() {
    others_.push_back(begin<&hold_thread>("the thread is held", [] { return held == 1; }));
    on(caller(), [this] { there().post<&take>(std::string(900'000, 'x')); });
  }
  void cut() {
    on(caller(), [this] { way().mark_down(error(peer_died, "the cable was cut")); });
  }
  void nothing() {}

  // ... and how the wait ends.
  error ends(future<int> f) { return result_on(caller(), failure_of(std::move(f))); }
  error cancel(future<int> f) {
    f.request_stop();
    return ends(std::move(f));
  }
  error lose(future<int> f) {
    cut();
    return ends(std::move(f));
  }
  error end_run(future<int> f) {
    auto heard = later(failure_of(std::move(f)));
    on(caller(), [this] { caller().shutdown(error(cancelled, "the test ends the run")); });
    return end_of(std::move(heard));
  }
  std::future<error> later(asio::awaitable<error> how) {
    return asio::co_spawn(weft::detail::context_of(caller()), std::move(how), asio::use_future);
  }
  static error end_of(std::future<error> heard) {
    until("it is heard", [&] { return heard.wait_for(0s) == std::future_status::ready; });
    return heard.get();
  }
  /// Waits for the callee's word also when the time is over that it was given.
  template <auto F>
  asio::awaitable<error> outwait(weft::duration time, unsigned id = 0, unsigned signature = 0) {
    weft::frame_header h;
    h.function = weft::function<F>::id() + id;
    h.signature = weft::function<F>::signature + signature;
    h.deadline = weft::deadline_field(time);
    h.call = call_id = way().pending().open(caller().time().now() + 1h);
    const auto number = way().queue(weft::message(), h);
    way().flush();
    weft::call_result r = co_await weft::async_wait_for_reply(
        way().pending(), {h.call, number.value()}, asio::deferred);
    co_return r.failure;
  }
  std::atomic<std::uint64_t> call_id{0};  // of the last one
  weft::duration limit = 20ms;            // of a try that may be too short

 private:
  raw_listener listener_;
  cluster all_;
  const weft::intrusive_ptr<weft::event> done_ = weft::make_intrusive<weft::event>();
  std::vector<future<int>> others_;
};

struct row {
  const char* name;
  weft::errc code;
  weft::call_progress ran;
  int times;
  error (*arrange)(scene&);
};
using ways = std::span<const std::pair<over, unsigned>>;
constexpr std::pair<over, unsigned> by_tcp[] = {{over::tcp, 0}, {over::tcp, by_default}};
constexpr std::pair<over, unsigned> on_one_thread[] = {{over::unix_socket, 0}};

/// Limits that a call can reach.
weft::options narrow() {
  weft::options o;
  o.compute_threads = 1;
  o.handshake_deadline = 200s;
  o.bounds.payload = 1 << 20;
  o.bounds.link_tensor_bytes = 8 << 10;
  return o;
}

void check(std::span<const row> rows, callee_is callee, ways all = live_scene<>::ways,
           weft::options o = narrow()) {
  for (const row& r : rows) {
    for (const auto& [how, io_threads] : all) {
      INFO(std::string(r.name), ", over ", name_of(how), ", io_threads ", io_threads);
      o.io_threads = with_io_threads(io_threads).io_threads;
      error e;
      try {
        scene s(callee, how, o);
        e = r.arrange(s);
      } catch (const std::exception& x) {
        FAIL_CHECK(std::string(x.what()));
      }
      INFO(e.message());
      CHECK(e == r.code);
      CHECK(e.ran() == r.ran);
      CHECK(times == r.times);
    }
  }
}

// ── how a call is arranged ──

using arranged = error (*)(scene&);
using step = void (scene::*)();

template <auto F, auto... Args>
error called(scene& s) {
  return s.call<F>(Args...);
}
template <future<int> (scene::*Wait)(), error (scene::*End)(future<int>)>
error waits(scene& s) {
  return (s.*End)((s.*Wait)());
}
template <int Milliseconds, step Prepare = &scene::nothing>
error called_for(scene& s) {
  (s.*Prepare)();
  return s.call<&count>(within(std::chrono::milliseconds(Milliseconds)));
}
template <auto F, std::size_t Size>
error called_with(scene& s) {
  return s.call<F>(std::string(Size, 'x'));
}
template <arranged Arranged, step Then>
error then(scene& s) {
  const error e = Arranged(s);
  (s.*Then)();
  return e;
}
/// A call of `count_fragile`, but for that, without its argument.
template <unsigned Id, unsigned Signature>
error unknown(scene& s) {
  return result_on(s.caller(), s.outwait<&count_fragile>(1h, Id, Signature));
}
/// The callee says so to a call whose function runs.
template <frame_kind Kind, std::uint8_t... Payload>
error hears(scene& s) {
  auto heard = s.later(s.outwait<&count_and_wait>(1h));
  until("it runs", [] { return times == 1; });
  on(s.callee(), [&] {
    weft::message m;
    (m.payload().number(Payload), ...);
    weft::frame_header h;
    h.kind = Kind;
    h.call = s.call_id;
    weft::engine::link& back = engine_link(s.callee(), 2);
    if (back.append(std::move(m).finish(h))) back.flush();
  });
  return scene::end_of(std::move(heard));
}
/// F ends after its time, or is ended: as often as it takes until it begins in time.
template <arranged Try>
error late(scene& s) {
  error e;
  for (bounded_wait patience("it began in time"); patience.not_yet(times > 0); s.limit *= 2) {
    e = Try(s);
  }
  return e;
}
error run_late(scene& s) { return s.call<&count_and_hold>(within(s.limit)); }
error be_ended(scene& s) { return result_on(s.caller(), s.outwait<&count_and_wait>(s.limit)); }
error not_wait(scene& s) {
  s.fill_window();
  return on(s.caller(), [&s] { return error_of([&s] { s.there().start<&count>().detach(); }); });
}
error arrive_late(scene& s) {
  s.hold_pool();
  const auto served = s.callee().stats().served + 1;
  auto heard = s.later(s.outwait<&count>(1ms));
  until("it has arrived", [&] { return s.callee().stats().served == served; });
  const auto over = std::chrono::steady_clock::now() + 2ms;
  while (std::chrono::steady_clock::now() < over) std::this_thread::yield();
  let_go = true;
  return scene::end_of(std::move(heard));
}
/// Returns when the callee, too, has heard of the loss.
error lose_before_it_begins(scene& s) {
  auto f = s.pool();
  auto told = on(s.callee(), [&] { return s.callee().peer(2).start<&wait>(); });
  const error e = s.lose(std::move(f));
  static_cast<void>(result_on(s.callee(), failure_of(std::move(told))));
  return e;
}
constexpr fragile unwritable{breaks::encoding}, unreadable{breaks::decoding};
using at = scene;

TEST_CASE("ran: a call over a link that is there") {
  const row rows[] = {
      {"its time is over when it begins", timed_out, not_sent, 0, called_for<0>},
      {"an argument's codec throws", not_encodable, not_sent, 0,
       called<&count_fragile, unwritable>},
      {"an argument is too large", message_too_large, not_sent, 0,
       called_with<&count_text, 2 << 20>},
      {"the callee is lost already", peer_died, not_sent, 0, called_for<60'000, &at::cut>},
      {"the callee does not know the function", unknown_function, not_executed, 0, unknown<1, 0>},
      {"the callee knows another signature", signature_mismatch, not_executed, 0, unknown<0, 1>},
      {"its arguments do not decode", bad_arguments, not_executed, 0, unknown<0, 0>},
      {"the callee's codec throws", not_encodable, not_executed, 0,
       called<&count_fragile, unreadable>},
      {"the callee's budget is full", resource_exhausted, not_executed, 0,
       called_with<&count_text, 16 << 10>},
      {"its time is over when it comes to the pool", timed_out, not_executed, 0, arrive_late},
      {"its time is over in the pool's line", timed_out, maybe_executed, 0,
       then<called_for<1000, &at::hold_pool>, &at::in_turn>},
      {"it is cancelled in the pool's line", cancelled, maybe_executed, 0,
       then<waits<&at::pool, &at::cancel>, &at::in_turn>},
      {"the link is lost then", peer_died, maybe_executed, 0, lose_before_it_begins},
      {"its time is over while it runs", timed_out, maybe_executed, 1,
       then<late<run_late>, &at::in_turn>},
      {"the callee ends it when its time is over", timed_out, maybe_executed, 1, late<be_ended>},
      {"cancelled while it runs", cancelled, maybe_executed, 1, waits<&at::result, &at::cancel>},
      {"link lost while it runs", peer_died, maybe_executed, 1, waits<&at::result, &at::lose>},
      {"run over while it runs", peer_died, maybe_executed, 1, waits<&at::result, &at::end_run>},
      {"the function ends as if cancelled", cancelled, maybe_executed, 1, called<&stops>},
      {"the callee breaks the protocol", protocol_error, maybe_executed, 1,
       hears<frame_kind::hello>},
      {"the failure does not decode", bad_arguments, maybe_executed, 1,
       hears<frame_kind::failure, 200>},
      {"the failure says success", bad_arguments, maybe_executed, 1, hears<frame_kind::failure, 0>},
      {"the function throws", remote_exception, executed, 1, called<&throws>},
      {"the function lacks memory", resource_exhausted, executed, 1, called<&lacks_memory>},
      {"the function reads bad bytes", remote_exception, executed, 1, called<&reads_too_far>},
      {"the function's call is not sent", remote_exception, executed, 1, called<&calls_too_late>},
      {"the result's codec throws", not_encodable, executed, 1, called<&give, breaks::encoding>},
      {"the result is too large", message_too_large, executed, 1, called<&give_text, 2u << 20>},
      {"the caller's codec throws", not_encodable, executed, 1, called<&give, breaks::decoding>},
      {"the result does not decode", bad_arguments, executed, 1, called<&give, breaks::reading>},
  };
  check(rows, callee_is::there);
}

TEST_CASE("ran: a call that waits in line for the window's room") {
  const row rows[] = {
      {"its time is over", timed_out, not_sent, 0, called_for<30, &at::fill_window>},
      {"it is cancelled", cancelled, not_sent, 0, waits<&at::room, &at::cancel>},
      {"the link is lost", peer_died, not_sent, 0, waits<&at::room, &at::lose>},
      {"the run ends", peer_died, not_sent, 0, waits<&at::room, &at::end_run>},
      {"it does not wait", too_many_calls, not_sent, 0, not_wait},
  };
  auto o = narrow();
  o.window_bytes = 1024;
  check(rows, callee_is::there, live_scene<>::ways, o);
}

TEST_CASE("ran: a call in the outbox, behind what its callee does not read") {
  const row rows[] = {
      {"its time is over", timed_out, not_sent, 0, called_for<30, &at::fill_socket>},
      {"it is cancelled", cancelled, not_sent, 0, waits<&at::socket, &at::cancel>},
      {"the link is lost", peer_died, not_sent, 0, waits<&at::socket, &at::lose>},
      {"the run ends", peer_died, not_sent, 0, waits<&at::socket, &at::end_run>},
  };
  check(rows, callee_is::there, on_one_thread);
}

TEST_CASE("ran: a call in the outbox, without a connection") {
  const row rows[] = {
      {"its time is over", timed_out, not_sent, 0, then<called_for<30>, &at::call_back>},
      {"it is cancelled", cancelled, not_sent, 0,
       then<waits<&at::connection, &at::cancel>, &at::call_back>},
      {"the link is lost", peer_died, not_sent, 0, waits<&at::connection, &at::lose>},
      {"the run ends", peer_died, not_sent, 0, waits<&at::connection, &at::end_run>},
  };
  check(rows, callee_is::silent, by_tcp);
}

}  // namespace ran_table
