// SPDX-License-Identifier: BSL-1.0
// The waits of calls, abandoned: for a reply, for the window's room, for a connection.
#include <weft/core/future.hpp>
#include <weft/engine/link/window.hpp>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <rpc/engine_link.hpp>
#include <rpc/live_abandoned.hpp>
#include <rpc/raw_peer.hpp>

namespace abandoned_calls {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::call_progress;
using weft::duration;
using weft::event;
using weft::intrusive_ptr;
using weft::options;
using weft::within;
using weft::worker;

int twice(int n) { return 2 * n; }

/// What the functions of one way wait for.
struct door {
  intrusive_ptr<event> opened = weft::make_intrusive<event>();
  std::atomic<int> begun{0};
  std::atomic<int> left{0};

  void open() {
    opened->set();
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++begun;
    changed_.wait_for(lock, wait_patience, [this] { return open_; });
    ++left;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};
std::atomic<door*> the_door{nullptr};
door& here() { return *the_door; }

asio::awaitable<int> pass_later(int n) {
  struct counted {
    counted() { ++here().begun; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { ++here().left; }
  } const counts;
  co_await event::async_wait(here().opened, asio::use_awaitable);
  co_return 2 * n;
}
int pass(int n) {
  here().pass();
  return 2 * n;
}

/// A scene with a door, open at its end.
class with_door : public live_scene<> {
 public:
  using live_scene::live_scene;
  ~with_door() { door_.open(); }
  void complete() { door_.open(); }
  /// A function has come through, so its reply is on its way.
  [[nodiscard]] bool arrives() const { return door_.left > 0; }
  asio::awaitable<void> again() {
    const weft::peer to = other();
    check_42(co_await to.call<&twice>(21));
    check_42(co_await to.call<&pass_later>(21));
  }

 protected:
  door door_;

 private:
  struct made_known {
    explicit made_known(door& d) { the_door = &d; }
  } known_{door_};
};

/// How worker 1 calls; and what it may say at most of a call that it gave up before it was sent.
struct by_call {
  static constexpr call_progress unsent = call_progress::not_sent;
  template <auto F>
  static asio::awaitable<void> of(weft::peer to, duration limit) {
    check_42(co_await to.call<F>(21, within(limit)));
  }
};
struct by_start {
  static constexpr call_progress unsent = call_progress::maybe_executed;
  template <auto F>
  static asio::awaitable<void> of(weft::peer to, duration limit) {
    return taken(to.start<F>(21, within(limit)));
  }
  static asio::awaitable<void> taken(weft::future<int> started) {
    check_42(co_await std::move(started));
  }
};

/// Waits for the reply of a function that runs.
template <auto F, class By = by_call>
struct for_reply : with_door {
  static constexpr got_as_far_as went{call_progress::maybe_executed, call_progress::maybe_executed};
  for_reply(over how, unsigned io_threads) : with_door(how, with_io_threads(io_threads)) {}
  void prepare() {}
  asio::awaitable<void> wait(duration limit) { return By::template of<F>(other(), limit); }
  [[nodiscard]] bool waits() const { return door_.begun > 0; }
};
using for_coroutine = for_reply<&pass_later>;
using for_plain = for_reply<&pass>;
using for_started = for_reply<&pass_later, by_start>;
/// Called, and awaited, on a thread that is no worker's.
using for_reply_elsewhere = elsewhere<for_coroutine>;
/// Started on the worker's thread; its future is awaited on another.
using for_future_elsewhere = elsewhere<for_started>;

/// Started there, too.
struct for_started_elsewhere : for_future_elsewhere {
  using elsewhere::elsewhere;
  asio::awaitable<void> wait(duration limit) {
    auto all = [](weft::peer to, duration l) -> asio::awaitable<void> {
      co_await by_start::of<&pass_later>(to, l);
    };
    return asio::co_spawn(pool_, all(other(), limit), asio::use_awaitable);
  }
};

/// Waits for a reply of this worker itself: both ends are on one thread.
struct for_own_reply : with_door {
  static constexpr got_as_far_as went{call_progress::maybe_executed, call_progress::maybe_executed};
  static constexpr bool of_a_link = false;
  for_own_reply(over how, unsigned io_threads) : with_door(how, with_io_threads(io_threads)) {}
  void prepare() {}
  asio::awaitable<void> wait(duration limit) {
    const auto self = me().peer(1);
    check_42(co_await self.call<&pass_later>(21, within(limit)));
  }
  [[nodiscard]] bool waits() const { return door_.begun > 0; }
  [[nodiscard]] static bool arrives() { return true; }  // queued on the thread that is held
  asio::awaitable<void> again() {
    const auto self = me().peer(1);
    check_42(co_await self.call<&pass_later>(21));
  }
  void check_nothing_left() {
    until("no call to itself waits", [this] {
      return on(me(), [this] { return engine_link(me(), 1).pending().waiting() == 0; });
    });
    until("no function runs", [this] { return door_.left == door_.begun; });
  }
};

/// Waits in line for room: the peer's window holds one request, which has not begun because the
/// peer's one pool thread stands at the door. Whatever is counted twice, or not given back, leaves
/// no room for the next call.
struct for_room : with_door {
  static constexpr got_as_far_as went{call_progress::not_sent, call_progress::not_sent};
  static constexpr std::uint64_t one_request = 1024;
  for_room(over how, unsigned io_threads) : with_door(how, narrow(io_threads)) {
    weft::testing::set_windows(all().members(), one_request);
  }
  void prepare() {
    hold();
    until("the first one has begun", [this] { return door_.begun == 1; });
    hold();
    until("the second one was sent",
          [this] { return engine_link(me(), there).requests.sent == 2; });
  }
  asio::awaitable<void> wait(duration limit) {
    const weft::peer to = other();
    check_42(co_await to.call<&twice>(21, within(limit)));
  }
  [[nodiscard]] bool waits() { return engine_link(me(), there).has_waiters(); }

 private:
  static options narrow(unsigned io_threads) {
    options o = with_io_threads(io_threads);
    o.compute_threads = 1;
    o.window_bytes = one_request;
    return o;
  }
  void hold() {
    auto held = [](weft::peer at) -> asio::awaitable<void> {
      static_cast<void>(co_await at.call<&pass>(1, as_expected));
    };
    asio::co_spawn(weft::detail::context_of(me()), held(other()), [](std::exception_ptr) {});
  }
};
using for_room_elsewhere = elsewhere<for_room>;

/// Member 2, played by hand: accepts, answers nothing until it may, then says 42 to every request.
class slow_to_answer {
 public:
  slow_to_answer() = default;
  slow_to_answer(const slow_to_answer&) = delete;
  slow_to_answer& operator=(const slow_to_answer&) = delete;
  ~slow_to_answer() {
    over_ = may_answer_ = true;
    if (playing_.joinable()) playing_.join();
  }
  [[nodiscard]] const std::string& endpoint() const { return listener_.endpoint(); }
  void play(weft::membership all) {
    playing_ = std::thread([this, all = std::move(all)] {
      try {
        // bounded: by `over_`, and by the patience of `accept_before`
        while (!answered_) {  // worker 1 comes first; nobody else is answered
          auto p = listener_.accept_before(over_);
          if (!p) return;
          meet(*p, all);
        }
      } catch (const std::exception& e) {
        FAIL_CHECK(std::string(e.what()));
      }
    });
  }
  [[nodiscard]] bool asked() const { return asked_; }
  void answer() { may_answer_ = true; }
  [[nodiscard]] bool answered() const { return answered_; }

 private:
  void meet(raw_peer& p, const weft::membership& all) {
    asked_ = true;
    // bounded: by the handshake's deadline at the other end, and by `over_`
    while (!may_answer_ && !p.ended()) std::this_thread::sleep_for(1ms);
    const bool welcomed = p.answer(all, 2);
    answered_ = answered_ || welcomed;
    if (!welcomed) return;
    // bounded: by the patience of `read`
    while (const auto f = p.read()) {
      if (f->header.kind != weft::frame_kind::request) continue;
      weft::message m;
      weft::codec<int>::encode(m.payload(), 42);
      weft::frame_header h;
      h.kind = weft::frame_kind::reply;
      h.call = f->header.call;
      h.function = weft::engine::request_cost(f->wire_size());  // gives its room back
      p.send(std::move(m).finish(h));
    }
  }

  raw_listener listener_;
  std::atomic<bool> asked_{false}, may_answer_{false}, answered_{false}, over_{false};
  std::thread playing_;
};

/// Waits for a connection. Its other end outlives the workers, which close theirs.
template <class By = by_call>
struct for_handshake : slow_to_answer, live_scene<> {
  static constexpr std::array<std::pair<over, unsigned>, 1> ways = {{{over::tcp, 1}}};
  static constexpr got_as_far_as went{call_progress::not_sent, By::unsent};
  for_handshake(over, unsigned io_threads) : for_handshake(with_io_threads(io_threads)) {}
  explicit for_handshake(options o) : live_scene(over::tcp, hasty(std::move(o)), 2, 1) {
    all().members().members.change(there).addresses = {{"tcp", endpoint()}};
  }
  void prepare() { play(all().members()); }
  asio::awaitable<void> wait(duration limit) { return By::template of<&twice>(other(), limit); }
  [[nodiscard]] bool waits() const { return asked(); }
  void complete() { answer(); }
  [[nodiscard]] bool arrives() const { return answered(); }
  asio::awaitable<void> again() { return wait(1h); }
  void check_nothing_left() {}

 private:
  /// Some cells last until nobody waits for an answer to the greeting any more.
  static options hasty(options o) {
    o.handshake_deadline = 2s;
    return o;
  }
};
using for_handshake_elsewhere = elsewhere<for_handshake<>>;

/// Waits in line behind the one frame that the outbox holds until there is a connection.
struct for_outbox : for_handshake<> {
  for_outbox(over, unsigned io_threads) : for_handshake(one_frame(io_threads)) {}
  void prepare() {
    for_handshake::prepare();
    auto first = [](weft::peer to) -> asio::awaitable<void> {
      static_cast<void>(co_await to.call<&twice>(21, as_expected));
    };
    asio::co_spawn(weft::detail::context_of(me()), first(other()), [](std::exception_ptr) {});
    until("it waits in the outbox", [this] { return engine_link(me(), there).waiting() == 1; });
  }
  [[nodiscard]] bool waits() { return engine_link(me(), there).has_waiters(); }

 private:
  static options one_frame(unsigned io_threads) {
    options o = with_io_threads(io_threads);
    o.outbox_frames = 1;
    return o;
  }
};

TEST_CASE_TEMPLATE("abandoned: a call", W, for_coroutine, for_plain, for_own_reply,
                   for_reply_elsewhere) {
  abandon_live<W>();
}
TEST_CASE_TEMPLATE("abandoned: the future of a call that was started", W, for_started,
                   for_future_elsewhere, for_started_elsewhere) {
  abandon_live<W>();
}
TEST_CASE_TEMPLATE("abandoned: a call that waits for room", W, for_room, for_room_elsewhere) {
  abandon_live<W>();
}
TEST_CASE_TEMPLATE("abandoned: a call that waits for its link's handshake" *
                       doctest::test_suite("all"),
                   W, for_handshake<>, for_handshake<by_start>, for_handshake_elsewhere,
                   for_outbox) {
  abandon_live<W>();
}

}  // namespace abandoned_calls
