// SPDX-License-Identifier: BSL-1.0
// One coroutine serves one request after another, and nothing of one is there for the next. The
// requests are the test's own, without a link.
#include <weft/core/call_scope.hpp>
#include <weft/core/event.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/serving/request_coroutine.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <core/loop.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace request_coroutines {

using namespace std::chrono_literals;
using weft::call_scope;
using weft::event;
using weft::intrusive_ptr;
using weft::make_intrusive;
using weft::engine::cancellable;
using weft::testing::settle;

/// A request whose function is `body`.
struct plain_request final : call_scope {
  explicit plain_request(std::function<asio::awaitable<void>()> f) : body(std::move(f)) {}
  cancellable* runner = nullptr;
  std::function<asio::awaitable<void>()> body;
  bool no_frame = false;  ///< there is no memory for the coroutine that serves it
  bool replied = false;
  std::exception_ptr failure;
};

struct plain_server {
  using request = plain_request;
  static asio::awaitable<void> serve(intrusive_ptr<request> call) {
    if (call->no_frame) throw std::bad_alloc();
    return run(std::move(call));
  }
  static void refuse(request& call) noexcept {
    call.failure = std::current_exception();
    call.replied = true;
  }

 private:
  static asio::awaitable<void> run(intrusive_ptr<request> call) {
    try {
      co_await call->body();
    } catch (...) {
      call->failure = std::current_exception();
    }
    call->replied = true;
  }
};
using coroutine = weft::engine::request_coroutine<plain_server>;
using request_ptr = intrusive_ptr<plain_request>;
using coroutine_ptr = intrusive_ptr<coroutine>;

request_ptr request(std::function<asio::awaitable<void>()> body) {
  return make_intrusive<plain_request>(std::move(body));
}
asio::awaitable<void> nothing() { co_return; }
request_ptr empty() { return request(&nothing); }
asio::awaitable<void> until(intrusive_ptr<event> e) {
  co_await event::async_wait(std::move(e), asio::use_awaitable);
}

bool was_aborted(const plain_request& call) {
  if (!call.failure) return false;
  try {
    std::rethrow_exception(call.failure);
  } catch (const std::system_error& e) {
    return e.code() == asio::error::operation_aborted;
  } catch (...) {
    return false;
  }
}

/// Its io_context is the worker's; the test steps it.
class scene {
 public:
  scene() = default;
  scene(const scene&) = delete;
  scene& operator=(const scene&) = delete;
  ~scene() {
    for (const coroutine_ptr& c : all_) c->drop();  // they hold themselves
  }

  [[nodiscard]] coroutine_ptr make() {
    auto out =
        make_intrusive<coroutine>(*io_, [this](const coroutine_ptr& by, plain_request& ended) {
          CHECK(ended.replied);
          CHECK(ended.runner == nullptr);
          ++served;
          if (when_served) when_served(*by);
        });
    all_.push_back(out);
    return out;
  }
  /// One that waits for its first request.
  [[nodiscard]] coroutine_ptr begun() {
    coroutine_ptr out = make();
    here([&] { out->begin(); });
    CHECK(out->reusable());
    return out;
  }
  /// On the worker's thread, as all that is done to coroutines is; then what follows from it.
  void here(std::function<void()> what) {
    asio::post(*io_, std::move(what));
    settle(*io_);
  }
  void give(const coroutine_ptr& to, const request_ptr& call) {
    here([&] {
      to->give(call);
      CHECK_FALSE(weft::this_scope());
    });
  }
  /// Nothing of the coroutine is left but the scene's object.
  [[nodiscard]] bool ended(const coroutine_ptr& c) const { return c->use_count() == 2; }
  void drop_context() { io_.reset(); }

  int served = 0;
  std::function<void(coroutine&)> when_served;

 private:
  std::optional<asio::io_context> io_{std::in_place};
  std::vector<coroutine_ptr> all_;
};

TEST_CASE("request_coroutine: serves one request after another, at once, on one coroutine") {
  scene s;
  const coroutine_ptr c = s.begun();
  for (int i = 1; i <= 20; ++i) {
    const auto call = empty();
    s.here([&] {
      c->give(call);
      CHECK(call->replied);  // within
      CHECK(c->reusable());
    });
    CHECK(s.served == i);
    CHECK_FALSE(call->failure);
    CHECK(call->use_count() == 1);  // nobody keeps it
  }
  CHECK_FALSE(s.ended(c));
}

TEST_CASE("request_coroutine: one that waits within does not serve another, and goes on after it") {
  scene s;
  const coroutine_ptr c = s.begun();
  const auto gate = make_intrusive<event>();
  const auto call = request([&] { return until(gate); });
  s.give(c, call);
  CHECK_FALSE(call->replied);
  CHECK(call->runner == c.get());
  CHECK_FALSE(c->reusable());
  s.here([&] { gate->set(); });
  CHECK(call->replied);
  CHECK(c->reusable());
  s.give(c, empty());
  CHECK(s.served == 2);
}

TEST_CASE("request_coroutine: what is given before it has begun is served when it begins") {
  scene s;
  const coroutine_ptr c = s.make();
  const auto call = empty();
  c->begin();  // not on the worker's thread, so its coroutine is only on its way
  c->give(call);
  CHECK_FALSE(call->replied);
  s.here([] {});
  CHECK(call->replied);
  CHECK(s.served == 1);
  CHECK_FALSE(c->reusable());  // it cannot know what its first call left over
  s.here([&] { c->drop(); });
  CHECK(s.ended(c));
}

// ── nothing of one request is there for the next ──

struct noted_mode final : weft::thread_mode {
  void enter(saved&) const noexcept override { ++inside; }
  void leave(const saved&) const noexcept override { --inside; }
  mutable int inside = 0;
};

TEST_CASE("request_coroutine: each request runs in its own scope, also after it waited") {
  scene s;
  const coroutine_ptr c = s.begun();
  const auto gate = make_intrusive<event>();
  const auto first_mode = make_intrusive<noted_mode>();
  struct seen {
    intrusive_ptr<const call_scope> before, after;
  };
  const auto look = [](seen& out, intrusive_ptr<event> at) -> asio::awaitable<void> {
    out.before = weft::this_scope();
    co_await until(std::move(at));
    out.after = weft::this_scope();
  };
  seen in_first;
  const auto first = request([&] { return look(in_first, gate); });
  first->deadline = call_scope::time_point() + 1min;
  first->autograd = make_intrusive<call_scope>();
  first->mode = first_mode;
  first->trace = 7;
  first->span = 8;
  s.give(c, first);
  CHECK(first_mode->inside == 0);  // it waits
  s.here([&] { gate->set(); });
  CHECK(in_first.before.get() == first.get());
  CHECK(in_first.after.get() == first.get());
  CHECK(first_mode->inside == 0);

  seen in_second;
  int modes = -1;
  const auto second = request([&]() -> asio::awaitable<void> {
    modes = first_mode->inside;
    return look(in_second, gate);
  });
  s.give(c, second);
  CHECK(in_second.before.get() == second.get());
  CHECK(in_second.after.get() == second.get());
  CHECK_FALSE(in_second.after->deadline);
  CHECK_FALSE(in_second.after->autograd);
  CHECK(in_second.after->trace == 0);
  CHECK(in_second.after->span == 0);
  CHECK(modes == 0);
  CHECK(s.served == 2);
}

TEST_CASE("request_coroutine: what a request made is gone before the next one runs") {
  scene s;
  const coroutine_ptr c = s.begun();
  const auto alive = std::make_shared<int>(0);
  const auto hold = [](std::shared_ptr<int>) -> asio::awaitable<void> { co_return; };
  {
    auto first = request([&hold, alive] { return hold(alive); });
    first->autograd = make_intrusive<call_scope>();
    const auto context = first->autograd;
    s.give(c, first);
    CHECK(first->use_count() == 1);
    first = nullptr;
    CHECK(context->use_count() == 1);
  }
  CHECK(alive.use_count() == 1);
  CHECK(c->reusable());
}

asio::awaitable<void> refuse_cancellation() {
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
}
asio::awaitable<void> take_every_cancellation() {
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
}
asio::awaitable<void> want_no_exceptions() { co_await asio::this_coro::throw_if_cancelled(false); }
asio::awaitable<void> all_of_that() {
  co_await refuse_cancellation();
  co_await want_no_exceptions();
  throw std::runtime_error("at its end");
}

TEST_CASE("request_coroutine: what a function set for cancellation is set back") {
  for (const auto first :
       {&refuse_cancellation, &take_every_cancellation, &want_no_exceptions, &all_of_that}) {
    scene s;
    const coroutine_ptr c = s.begun();
    s.give(c, request(first));
    CHECK(s.served == 1);
    CHECK(c->reusable());

    bool throws = false;
    auto cancelled = asio::cancellation_type::all;
    const auto never = make_intrusive<event>();
    const auto second = request([&]() -> asio::awaitable<void> {
      return [](bool& t, asio::cancellation_type& already,
                intrusive_ptr<event> e) -> asio::awaitable<void> {
        t = co_await asio::this_coro::throw_if_cancelled();
        already = (co_await asio::this_coro::cancellation_state).cancelled();
        co_await until(std::move(e));
      }(throws, cancelled, never);
    });
    s.give(c, second);
    CHECK(throws);
    CHECK(cancelled == asio::cancellation_type::none);
    CHECK_FALSE(second->replied);
    s.here([&] { second->runner->cancel(); });
    CHECK(second->replied);
    CHECK(was_aborted(*second));
  }
}

TEST_CASE("request_coroutine: it is not reused while anything keeps its executor") {
  scene s;
  const coroutine_ptr c = s.begun();
  asio::any_io_executor kept;
  const auto keep = [](asio::any_io_executor& out) -> asio::awaitable<void> {
    out = co_await asio::this_coro::executor;
  };
  s.give(c, request([&] { return keep(kept); }));
  CHECK(s.served == 1);
  CHECK_FALSE(c->reusable());  // a single handle is enough
  kept = nullptr;
  CHECK(c->reusable());

  // A coroutine that the function left behind, until it ends.
  const auto gate = make_intrusive<event>();
  const auto leave = [](intrusive_ptr<event> e) -> asio::awaitable<void> {
    asio::co_spawn(co_await asio::this_coro::executor, until(std::move(e)), asio::detached);
  };
  s.give(c, request([&] { return leave(gate); }));
  CHECK(s.served == 2);
  CHECK_FALSE(c->reusable());
  s.here([&] { gate->set(); });
  CHECK(c->reusable());
  s.give(c, empty());
  CHECK(s.served == 3);
}

TEST_CASE("request_coroutine: who kept the scope of a request keeps that request's") {
  scene s;
  const coroutine_ptr c = s.begun();
  intrusive_ptr<const call_scope> kept;
  const auto first = request([&] {
    kept = weft::this_scope();
    return nothing();
  });
  first->deadline = call_scope::time_point() + 1min;
  s.give(c, first);
  CHECK(c->reusable());
  const auto second = empty();
  second->deadline = call_scope::time_point() + 30min;
  s.give(c, second);
  CHECK(kept.get() == first.get());
  CHECK(kept->deadline == call_scope::time_point() + 1min);
}

// ── ends ──

TEST_CASE("request_coroutine: one that was cancelled ends, also if its function did not mind") {
  for (const bool minds : {true, false}) {
    CAPTURE(minds);
    scene s;
    const coroutine_ptr c = s.begun();
    const auto never = make_intrusive<event>();
    const auto call = request([&] {
      return [](intrusive_ptr<event> e, bool m) -> asio::awaitable<void> {
        try {
          co_await until(std::move(e));
        } catch (const std::system_error&) {
          if (m) throw;
        }
      }(never, minds);
    });
    s.give(c, call);
    CHECK_FALSE(call->replied);
    s.here([&] { call->runner->cancel(); });
    CHECK(call->replied);
    CHECK(was_aborted(*call) == minds);
    CHECK(s.served == 1);
    CHECK_FALSE(c->reusable());
    CHECK(s.ended(c));
  }
}

TEST_CASE("request_coroutine: what is cancelled before it began is refused, and told so") {
  scene s;
  const coroutine_ptr c = s.make();
  bool ran = false;
  const auto call = request([&] {
    ran = true;
    return nothing();
  });
  s.here([&] {
    c->begin();
    c->cancel();
    c->give(call);
  });
  CHECK(call->replied);
  CHECK(was_aborted(*call));
  CHECK_FALSE(ran);
  CHECK(s.served == 1);
  CHECK(s.ended(c));
}

TEST_CASE("request_coroutine: without memory for a frame one request is refused, the next served") {
  scene s;
  const coroutine_ptr c = s.begun();
  const auto poor = empty();
  poor->no_frame = true;
  s.give(c, poor);
  REQUIRE(poor->failure);
  CHECK_THROWS_AS(std::rethrow_exception(poor->failure), std::bad_alloc);
  CHECK(s.served == 1);
  CHECK(c->reusable());
  const auto next = empty();
  s.give(c, next);
  CHECK(next->replied);
  CHECK_FALSE(next->failure);
}

TEST_CASE("request_coroutine: dropped while it waits it ends, twice is once") {
  scene s;
  const coroutine_ptr fresh = s.begun();
  const coroutine_ptr used = s.begun();
  s.give(used, empty());
  CHECK_FALSE(s.ended(fresh));
  CHECK_FALSE(s.ended(used));
  s.here([&] {
    for (coroutine* c : {fresh.get(), used.get()}) {
      c->drop();
      c->drop();
      CHECK_FALSE(c->reusable());
    }
  });
  CHECK(s.ended(fresh));
  CHECK(s.ended(used));
  CHECK(s.served == 1);
}

TEST_CASE("request_coroutine: retired, it serves what it serves, and ends") {
  scene s;
  const coroutine_ptr c = s.begun();
  const auto gate = make_intrusive<event>();
  SUBCASE("while it serves") {
    s.give(c, request([&] { return until(gate); }));
    c->retire();
    CHECK(s.served == 0);
    s.here([&] { gate->set(); });
  }
  SUBCASE("when it has served") {
    s.when_served = [](coroutine& by) { by.retire(); };
    s.give(c, empty());
  }
  CHECK(s.served == 1);
  CHECK_FALSE(c->reusable());
  CHECK(s.ended(c));
}

TEST_CASE("request_coroutine: with its io_context goes what it serves") {
  scene s;
  const coroutine_ptr c = s.begun();
  const auto alive = std::make_shared<int>(0);
  const auto never = make_intrusive<event>();
  const auto hold = [](std::shared_ptr<int>, intrusive_ptr<event> e) -> asio::awaitable<void> {
    co_await until(std::move(e));
  };
  s.give(c, request([&, alive] { return hold(alive, never); }));
  CHECK(alive.use_count() > 2);
  s.drop_context();
  CHECK(s.served == 0);
  CHECK(s.ended(c));
}

}  // namespace request_coroutines
