// SPDX-License-Identifier: BSL-1.0
// Every wait between live workers ends, and leaves nothing, however and whenever it is abandoned.
//
//   what waits  ×  cancellation, deadline, loss of the link, end of the run
//               ×  before it began, while it waits, in one turn of the loop with its completion
//
// Worker 1 waits for member 2; worker 0 and the links to it stay well. A new kind of wait is a class
// with what `live_wait` lists, and a line in a TEST_CASE_TEMPLATE that calls `abandon_live`.
#pragma once

#include <weft/core/event.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <asio/post.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <core/bounded_wait.hpp>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <rpc/cluster.hpp>
#include <rpc/engine_link.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::testing {

enum class cut : std::uint8_t { cancellation, deadline, link_loss, end_of_run };
enum class cut_when : std::uint8_t { before, during, first, second };

inline std::string name_of(cut how) {
  const char* const names[] = {"cancellation", "deadline", "link loss", "end of the run"};
  return names[static_cast<int>(how)];
}
inline std::string name_of(cut_when when) {
  const char* const names[] = {"before it began", "while it waits",
                               "in one turn with its completion, which comes second",
                               "in one turn with its completion, which comes first"};
  return names[static_cast<int>(when)];
}

/// A CHECK would take what the call throws.
inline void check_42(int result) { CHECK(result == 42); }
/// The result of `f()` on a worker's own thread, of which this is not.
template <class F>
auto on(worker& at, F f) {
  const auto work = std::make_shared<std::packaged_task<std::invoke_result_t<F>()>>(std::move(f));
  auto done = work->get_future();
  asio::post(weft::detail::context_of(at), [work] { (*work)(); });
  if (done.wait_for(2 * wait_patience) != std::future_status::ready) {  // what it does may wait
    throw std::runtime_error("a worker's thread does not answer");
  }
  return done.get();
}
/// The result of a coroutine on a worker's own thread.
template <class T>
T result_on(worker& at, asio::awaitable<T> work) {
  auto done = asio::co_spawn(weft::detail::context_of(at), std::move(work), asio::use_future);
  if (done.wait_for(wait_patience) != std::future_status::ready) {
    throw std::runtime_error("a worker's coroutine does not end");
  }
  return done.get();
}

/// `call_progress` of one that is abandoned while it waits; which of two it is may depend on the peer.
struct got_as_far_as {
  call_progress least;
  call_progress most;
  call_progress before = call_progress::not_sent;  ///< at most, of one that had not begun
};

/// A kind of wait. Made anew for each way to end it, and told in this order: `start`, `prepare`,
/// then from worker 1's thread `wait`; `complete` and `again` once or not at all; `finish`.
template <class W>
concept live_wait = std::constructible_from<W, over, unsigned> && requires(W& w, duration limit) {
  { W::of_a_link } -> std::convertible_to<bool>;  // it is another worker that it waits for
  { W::went } -> std::convertible_to<got_as_far_as>;
  { W::lost } -> std::convertible_to<errc>;  // what is said when that worker is lost
  w.start();
  w.prepare();  // the test's thread: all is there but the wait
  { w.me() } -> std::same_as<worker&>;
  { w.wait(limit) } -> std::same_as<asio::awaitable<void>>;
  { w.waits() } -> std::same_as<bool>;    // any thread: it does now
  w.complete();                           // any thread
  { w.arrives() } -> std::same_as<bool>;  // any thread: what completes it is there, or under way
  {
    w.again()
  } -> std::same_as<asio::awaitable<void>>;            // another one of the kind, after `complete`
  w.check_nothing_left();                              // the test's thread, while the run goes on
  { w.finish() } -> std::same_as<std::vector<error>>;  // the run, if it goes on
  { w.join() } -> std::same_as<std::vector<error>>;
};

/// What most kinds share: a cluster whose mains only serve.
template <class... Services>
class live_scene {
 public:
  static constexpr bool of_a_link = true;
  static constexpr errc lost = errc::peer_died;
  static constexpr std::uint32_t there = 2;
  /// Over which transport, with how many I/O threads.
  static constexpr std::array<std::pair<over, unsigned>, 3> ways = {
      {{over::inproc, 0}, {over::tcp, by_default}, {over::unix_socket, 2}}};

  live_scene(over how, options o, std::uint32_t real = 3, std::uint32_t strangers = 0)
      : all_(real, how, without_even(std::move(o)), strangers), with_strangers_(strangers > 0) {}
  void start() {
    all_.start([done = done_](worker&) -> asio::awaitable<void> {
      co_await event::async_wait(done, asio::use_awaitable);
    });
  }
  [[nodiscard]] worker& me() { return all_.at(1); }
  [[nodiscard]] peer other() { return me().peer(there); }
  [[nodiscard]] cluster_with<Services...>& all() { return all_; }
  [[nodiscard]] std::vector<error> join() { return all_.join(); }
  /// Ends the run, well if it can: strangers never say that they are done.
  [[nodiscard]] std::vector<error> finish() {
    done_->set();
    if (with_strangers_) all_.stop();
    return join();
  }
  /// All requests of worker 1 to a real worker are finished there.
  void check_nothing_left() {
    until("every request has ended", [this] {
      return engine_link(me(), there).requests.sent ==
             engine_link(all_.at(there), 1).requests.finished;
    });
  }

 private:
  /// So that worker 1 and its run outlive a broken link to worker 2.
  [[nodiscard]] static options without_even(options o) {
    o.on_loss = loss_policy::go_on_without({"even"});
    return o;
  }

  cluster_with<Services...> all_;
  const bool with_strangers_;
  const intrusive_ptr<event> done_ = make_intrusive<event>();
};

/// The same wait, on a thread that is no worker's. Cancelled there, it does not say how far it got.
template <class W>
class elsewhere : public W {
 public:
  using W::W;
  static constexpr bool goes_with_its_worker = true;
  static constexpr got_as_far_as went{W::went.least, call_progress::maybe_executed, W::went.before};
  /// What hops to a worker that has ended waits in its io_context, which nobody runs any more.
  ~elsewhere() {
    const auto joined = std::async(std::launch::async, [this] { pool_.join(); });
    // bounded: by the watchdog
    while (joined.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      weft::detail::context_of(this->me()).restart();
      weft::detail::context_of(this->me()).poll();
    }
  }
  asio::awaitable<void> wait(duration limit) {
    return asio::co_spawn(pool_, W::wait(limit), asio::use_awaitable);
  }

 protected:
  asio::thread_pool pool_{1};
};

namespace detail {

/// How a wait ended: written by its coroutine, read once it has.
struct wait_end {
  std::atomic<bool> ended{false};
  error why{};
  bool typed = true;
  std::atomic<time_point> began{time_point{}};
  void set(error e) {
    why = std::move(e);
    ended = true;
  }
};

template <class W>
asio::awaitable<void> wait_live(W& w, duration limit, std::shared_ptr<wait_end> end,
                                [[maybe_unused]] std::shared_ptr<int> alive) {
  try {
    co_await asio::post(asio::use_awaitable);  // what happens in this turn comes before the wait
    end->began = w.me().time().now();
    co_await w.wait(limit);
    end->set({});
  } catch (const rpc_error& e) {
    end->set(e.error());
  } catch (const std::system_error& e) {
    CHECK(e.code() == asio::error::operation_aborted);
    end->typed = false;
    end->set(error(errc::cancelled, "before it began", call_progress::not_sent));
  }
}

/// What a wait that is abandoned in this way says.
inline void check_says(cut how, cut_when when, const error& e, got_as_far_as went, errc lost) {
  INFO("it ended with: ", e.message());
  switch (how) {
  case cut::cancellation:
    CHECK(e == errc::cancelled);
    break;
  case cut::deadline:
    CHECK(e == errc::timed_out);
    break;
  case cut::link_loss:
    CHECK(e == lost);
    CHECK(e.message().find("worker2") != std::string::npos);
    break;
  case cut::end_of_run:
    CHECK((e == lost || e == errc::peer_died || e == errc::worker_failed ||
           e == errc::shutting_down || e == errc::cancelled));
    break;
  }
  if (when == cut_when::during) {
    CHECK(e.ran() >= went.least);
    CHECK(e.ran() <= went.most);
  }
  if (when == cut_when::before && how != cut::deadline && how != cut::end_of_run) {
    CHECK(e.ran() <= went.before);
  }
}

template <live_wait W>
void abandon(W& w, cut how, cut_when when, const std::shared_ptr<wait_end>& end,
             const std::shared_ptr<int>& alive) {
  using namespace std::chrono_literals;
  constexpr duration long_time = 1h;  // no wait reaches it
  const bool both = when == cut_when::first || when == cut_when::second;
  const duration limit = how != cut::deadline       ? long_time
                         : when == cut_when::before ? duration(0)
                                                    : duration(both ? 300ms : 30ms);
  worker& me = w.me();
  future<void> work;
  const auto begin = [&] { work = me.spawn(wait_live(w, limit, end, alive)); };
  const auto act = [&] {
    switch (how) {
    case cut::cancellation:
      return work.request_stop();
    case cut::deadline: {
      // bounded: by the limit of a fraction of a second
      const time_point over = end->began.load() + limit;
      while (me.time().now() <= over) std::this_thread::yield();
      return;
    }
    case cut::link_loss:
      return engine_link(me, W::there)
          .mark_down(error(errc::peer_died, "the cable was cut", call_progress::maybe_executed));
    case cut::end_of_run:
      return me.shutdown(error(errc::cancelled, "the test ends the run"));
    }
  };
  const auto queue = [&] {
    if (how == cut::deadline) return act();  // its timer is due
    asio::post(weft::detail::context_of(me), act);
  };

  bool completed = false;
  bool waited = false;
  if (when == cut_when::before) {
    on(me, [&] {
      begin();
      if (how != cut::deadline) act();
    });
  } else {
    on(me, begin);
    // On a slow machine a deadline may come before that.
    until("it waits", [&] { return (waited = w.waits()) || end->ended; });
    if (when == cut_when::during && how != cut::deadline) on(me, act);
    if (both) {
      completed = true;
      on(me, [&] {
        if (when == cut_when::first) queue();
        w.complete();
        until("what completes it is there", [&] { return end->ended || w.arrives(); });
        if (when == cut_when::second) queue();
      });
    }
  }
  // What is on its way to a worker that has ended goes with its io_context, unheard.
  if constexpr (requires { W::goes_with_its_worker; }) {
    if (how == cut::end_of_run) {
      if (!completed) w.complete();
      CHECK(w.join()[1] == errc::worker_failed);
      if (end->ended && end->why) check_says(how, cut_when::before, end->why, W::went, W::lost);
      return;
    }
  }
  until("it ended", [&] { return end->ended.load(); });
  if (end->why || !both) {
    check_says(how, waited || when != cut_when::during ? when : cut_when::before, end->why, W::went,
               W::lost);
  }
  if (when != cut_when::before && how != cut::end_of_run) CHECK(end->typed);
  if (!completed) w.complete();
  if (how == cut::end_of_run) {
    CHECK(w.join()[1] == errc::worker_failed);
    return;
  }
  if (how == cut::link_loss) {
    CHECK(on(me, [&] { return engine_link(me, W::there).current_state() == link::state::down; }));
  } else {
    result_on(me, w.again());
    w.check_nothing_left();
  }
  until("no call waits", [&] {
    return on(me, [&] {
      engine::link& l = engine_link(me, W::there);
      return l.pending().waiting() == 0 && !l.has_waiters() && l.waiting() == 0;
    });
  });
  on(me, [&] { work = {}; });
  for (const error& e : w.finish()) {
    INFO(e.message());
    const bool lost =
        how == cut::link_loss && e.message().find("the link between") != std::string::npos;
    CHECK((!e || lost || e.message().find("test is over") != std::string::npos));
  }
}

}  // namespace detail

/// All endings at all moments, in all of its ways.
template <live_wait W>
void abandon_live() {
  for (const auto& [transport, io_threads] : W::ways) {
    for (const cut how : {cut::cancellation, cut::deadline, cut::link_loss, cut::end_of_run}) {
      if (how == cut::link_loss && !W::of_a_link) continue;
      for (const cut_when when :
           {cut_when::before, cut_when::during, cut_when::first, cut_when::second}) {
        CAPTURE(name_of(transport));
        CAPTURE(name_of(how));
        CAPTURE(name_of(when));
        const auto alive = std::make_shared<int>(0);
        {
          const auto end = std::make_shared<detail::wait_end>();
          W w(transport, io_threads);
          w.start();
          try {
            w.prepare();
            detail::abandon(w, how, when, end, alive);
          } catch (const std::exception& e) {
            FAIL_CHECK(std::string(e.what()));
            w.complete();
            static_cast<void>(how == cut::end_of_run ? w.join() : w.finish());
          }
        }
        CHECK(alive.use_count() == 1);
      }
    }
    if (!run_all()) break;  // one way is enough
  }
}

}  // namespace weft::testing
