// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/engine/join.hpp.
#pragma once

#include <weft/core/detail/rethrow_taken.hpp>
#include <weft/core/system_random.hpp>
#include <weft/engine/impl/run.hpp>
#include <weft/engine/join.hpp>
#include <weft/engine/joined.hpp>

#include <asio/this_coro.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace weft::engine {

/// A worker that listens and has not met the others.
struct joining {
  std::shared_ptr<joined> who;
  meeting_request request;

  [[nodiscard]] bool alone() const noexcept { return request.where.size == 1; }
  [[nodiscard]] meeting meeting_of_one() {
    return {engine::alone(request.self, request.random), nullptr};
  }
};

[[nodiscard]] inline joining begin_join(make_transports* transports, asio::io_context* loop,
                                        options o) {
  if (const error unfit = unfit_program()) throw rpc_error(unfit);
  if (const error unfit = unfit_options(o)) throw rpc_error(unfit);
  const auto place = place_of(o);
  const bool launched = place && !o.place;
  if (!place && o.workers > 1) {
    throw rpc_error(errc::invalid_argument,
                    "weft::join starts no processes, and nothing says which of " +
                        std::to_string(o.workers) +
                        " workers this is: set options.place, or start the program by a launcher");
  }
  if (launched) {
    static std::atomic<bool> joined_before{false};
    if (joined_before.exchange(true)) {
      throw rpc_error(errc::invalid_argument,
                      "this process has joined already as the worker that its launcher says: "
                      "another one of its run, or of another run, needs options.place");
    }
  }
  joining out;
  meeting_request& ask = out.request;
  const placement& where = ask.where = place.value_or(placement{});
  settle_threads(o, where.on_this_host);
  need_descriptors(descriptors_of_worker(where.rank, where.size, o.io_threads), "this worker");
  ask.random = system_random();
  ask.self = introduce(where.rank, where.size, o);
  ask.self.incarnation = random_id(ask.random);
  ask.deadline = o.rendezvous_deadline;
  ask.run_id = o.run_id;
  // A launcher hears only of the worker that it started.
  std::function<void(const error&)> said;
  if (launched) {
    run_report::begins();
    said = [name = ask.self.name](const error& why) { run_report::ends(name, why); };
  }
  auto life = std::make_unique<runtime>(transport_set(transports(address_of(where))), std::move(o),
                                        services_of_run(), loop);
  ask.self.addresses = life->addresses();
  out.who = std::make_shared<joined>(std::move(life), loop, std::move(said));
  return out;
}

[[nodiscard]] inline owned_worker begin_serving(joining& begun, meeting&& met) {
  begun.who->begin(std::move(met.all), std::move(begun.request.random), std::move(met.store));
  return owned_worker(begun.who);
}

/// What comes of a meeting that a coroutine waits for.
struct meeting_result {
  const intrusive_ptr<event> done = make_intrusive<event>();
  std::mutex lock;
  std::optional<meeting> met;
  std::exception_ptr failure;
};

/// Whoever does not wait any more, for whatever reason, wants no meeting any more.
struct waits_for_meeting {
  const given_up stop;
  explicit waits_for_meeting(given_up s) noexcept : stop(std::move(s)) {}
  waits_for_meeting(const waits_for_meeting&) = delete;
  waits_for_meeting& operator=(const waits_for_meeting&) = delete;
  ~waits_for_meeting() { stop->store(true); }
};

inline namespace WEFT_VERSION_NAME {

WEFT_DECL owned_worker join_blocking(make_transports* transports, asio::io_context* loop,
                                     options o) {
  joining begun = begin_join(transports, loop, std::move(o));
  return begin_serving(begun, begun.alone() ? begun.meeting_of_one() : meet(begun.request));
}

WEFT_DECL asio::awaitable<owned_worker> join(make_transports* transports, asio::io_context* loop,
                                             options o) {
  joining begun = begin_join(transports, loop, std::move(o));
  if (begun.alone()) co_return begin_serving(begun, begun.meeting_of_one());
  const auto state = std::make_shared<meeting_result>();
  const waits_for_meeting waits{
      begin_meeting(begun.request, [state](std::optional<meeting> met, std::exception_ptr why) {
        {
          const std::lock_guard hold(state->lock);
          state->met = std::move(met);
          state->failure = std::move(why);
        }
        state->done->set();
      })};
  // Also if the store's process is stopped, which has no time limits then.
  asio::steady_timer limit(co_await asio::this_coro::executor);
  limit.expires_at(
      later(later(real_clock().now(), begun.request.deadline), std::chrono::seconds(2)));
  limit.async_wait([done = state->done](asio::error_code ec) {
    if (!ec) done->set();
  });
  try {
    co_await event::wait(state->done);
  } catch (const std::system_error&) {
    throw rpc_error(errc::cancelled, "weft::join was cancelled before the workers had met",
                    call_progress::not_executed);
  }
  limit.cancel();
  const std::lock_guard hold(state->lock);
  rethrow_taken(state->failure);
  if (!state->met) {
    throw rpc_error(errc::rendezvous_failed, holder_of_store() + " does not answer");
  }
  co_return begin_serving(begun, std::move(*state->met));
}

}  // namespace WEFT_VERSION_NAME
}  // namespace weft::engine
