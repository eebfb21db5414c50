// SPDX-License-Identifier: BSL-1.0
// Bodies of ../join.hpp.
#pragma once

#include <weft/core/detail/rethrow_taken.hpp>
#include <weft/core/system_random.hpp>
#include <weft/engine/impl/run.hpp>
#include <weft/engine/join.hpp>
#include <weft/engine/worker/joined.hpp>

#include <asio/this_coro.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace weft::engine {

/// A worker that has not met the others, and at first does not listen.
struct joining {
  options settings;
  meeting_request request;
  bool launched = false;  ///< a launcher hears only of the worker that it started
  std::string why_so_many;
  std::shared_ptr<joined> who{};

  [[nodiscard]] bool alone() const noexcept { return request.where.size == 1; }
  [[nodiscard]] meeting meeting_of_one() {
    return {engine::alone(request.self, request.random), nullptr};
  }
};

[[nodiscard]] inline joining begin_join(options o) {
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
                      "this process has already joined as the worker that its launcher names: "
                      "to join as another worker, of this run or another, set options.place");
    }
  }
  const placement where = place.value_or(placement{});
  settle_threads(o, where.on_this_host);
  meeting_request ask{where, introduce(where.rank, where.size, o), countdown(o.rendezvous_deadline),
                      system_random(), run_id_of(o.run_id)};
  ask.self.incarnation = random_id(ask.random);
  if (launched) run_report::begins();
  std::string why_so_many = word_of_launcher(where, o);
  return {std::move(o), std::move(ask), launched, std::move(why_so_many)};
}

/// From now on it listens, at these addresses of its host.
inline void listen(joining& begun, make_transports* transports, asio::io_context* loop,
                   const std::vector<std::string>& reached_at) {
  meeting_request& ask = begun.request;
  need_descriptors(
      descriptors_of_worker(ask.where.rank, ask.where.size, begun.settings.io_threads) +
          reached_at.size(),
      "this worker");
  std::function<void(const error&)> said;
  if (begun.launched) {
    said = [name = ask.self.name](const error& why) { run_report::ends(name, why); };
  }
  auto life = std::make_unique<runtime>(transport_set(transports(reached_at)),
                                        std::move(begun.settings), services_of_run(), loop);
  ask.self.addresses = life->addresses();
  begun.who = std::make_shared<joined>(std::move(life), loop, std::move(said));
}

[[nodiscard]] inline owned_worker begin_serving(joining& begun, meeting&& met) {
  met.all.why_so_many = begun.why_so_many;
  begun.who->begin(std::move(met.all), std::move(begun.request.random), std::move(met.store));
  return owned_worker(begun.who);
}

/// Whoever does not wait any more, for whatever reason, wants no meeting any more.
struct waits_for_meeting {
  const countdown left;
  explicit waits_for_meeting(countdown l) : left(std::move(l)) {}
  waits_for_meeting(const waits_for_meeting&) = delete;
  waits_for_meeting& operator=(const waits_for_meeting&) = delete;
  ~waits_for_meeting() { left.give_up(); }
};

/// `apart` (rendezvous.hpp) for a coroutine, whose loop goes on. Throws besides: cancelled.
template <class T>
[[nodiscard]] asio::awaitable<T> wait_apart(std::function<T()> work, countdown left,
                                            std::string (*stuck)()) {
  struct shared {
    const intrusive_ptr<event> done = make_intrusive<event>();
    std::mutex lock;
    std::optional<T> out;
    std::exception_ptr failure;
  };
  const auto state = std::make_shared<shared>();
  begin_apart<T>(std::move(work), [state](std::optional<T> out, std::exception_ptr why) {
    {
      const std::lock_guard hold(state->lock);
      state->out = std::move(out);
      state->failure = std::move(why);
    }
    state->done->set();
  });
  asio::steady_timer limit(co_await asio::this_coro::executor);
  limit.expires_at(left.end(patience_with_others));
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
  if (!state->out) throw rpc_error(errc::rendezvous_failed, stuck());
  co_return std::move(*state->out);
}

/// What is done apart. Functions: GCC warns of a lambda in the frame of a coroutine that is seen
/// outside of its file.
[[nodiscard]] inline std::function<std::vector<std::string>()>
looks_up(const meeting_request& ask) {
  return [where = ask.where, left = ask.left] { return own_addresses(where, left); };
}
[[nodiscard]] inline std::function<meeting()> meets(const meeting_request& ask) {
  return [ask] { return meet(ask); };
}

inline namespace WEFT_VERSION_NAME {

WEFT_DECL owned_worker join_blocking(make_transports* transports, asio::io_context* loop,
                                     options o) {
  joining begun = begin_join(std::move(o));
  const meeting_request& ask = begun.request;
  using texts = std::vector<std::string>;
  listen(begun, transports, loop,
         ask.where.one_host() ? texts() : apart<texts>(looks_up(ask), ask.left, stuck_look_up()));
  return begin_serving(begun, begun.alone() ? begun.meeting_of_one()
                                            : apart<meeting>(meets(ask), ask.left, stuck_store()));
}

WEFT_DECL asio::awaitable<owned_worker> join(make_transports* transports, asio::io_context* loop,
                                             options o) {
  joining begun = begin_join(std::move(o));
  const meeting_request& ask = begun.request;
  const waits_for_meeting waits(ask.left);
  std::vector<std::string> reached_at;
  if (!ask.where.one_host()) {
    reached_at = co_await wait_apart(looks_up(ask), ask.left, &stuck_look_up);
  }
  listen(begun, transports, loop, reached_at);
  if (begun.alone()) co_return begin_serving(begun, begun.meeting_of_one());
  co_return begin_serving(begun, co_await wait_apart(meets(ask), ask.left, &stuck_store));
}

}  // namespace WEFT_VERSION_NAME
}  // namespace weft::engine
