// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link_host.hpp and ../request_source.hpp.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/log.hpp>
#include <weft/engine/cork/cork.hpp>
#include <weft/engine/serving/link_host.hpp>
#include <weft/engine/serving/request_source.hpp>

#include <string>
#include <utility>

namespace weft::engine {

inline link_host::link_host(worker_parts env, membership all, options settings)
    : weft::worker(env.context, env.time, env.random, std::move(all), std::move(settings)),
      env_(std::move(env)),
      deadlines_(env_.time, env_.context),
      buffers_(options_.buffer_cache_bytes),
      memory_(make_intrusive<memory_budget>(options_.bounds.worker_tensor_bytes, nullptr)),
      salt_(random_()),
      late_(env_.alarm, env_.time) {}

inline request_source::request_source(link_host& me, std::uint32_t rank) noexcept
    : weft::link(me, rank), me_(me) {}

inline void link_host::post_failed(std::uint64_t function, std::string_view named,
                                   std::uint32_t from, const error& why) noexcept {
  counts.posts_failed.fetch_add(1, std::memory_order_relaxed);
  if (why == errc::cancelled || why == errc::peer_died) return;
  or_die([&] {
    // What nobody knows has one name: peers choose the number.
    if (!failed_posts_.first(named.empty() ? 0 : function)) return;
    say(name(), "a post of " +
                    (named.empty() ? std::string("a function that is not here")
                                   : "'" + std::string(named) + "'") +
                    " by worker '" + members_.members[from].name + "' failed: " + why.message() +
                    "; others of this function are only counted (posts_failed)");
  });
}

inline void link_host::creation_failed(std::uint64_t function, std::uint32_t from,
                                       const error& why) noexcept {
  counts.creations_failed.fetch_add(1, std::memory_order_relaxed);
  if (why == errc::cancelled || why == errc::peer_died) return;
  or_die([&] {
    if (!failed_creations_.first(function)) return;
    say(name(), "a make or remote by worker '" + members_.members[from].name +
                    "' failed, and nobody asked for its object: " + why.message() +
                    "; others of this function are only counted (creations_failed)");
  });
}

// ── turns of the loop ──

inline std::uint64_t link_host::turn() noexcept {
  turn_grew_ = true;
  if (late_.in_turn()) return turn_;
  ++turn_;
  late_.begin_turn();
  turn_rounds_ = 0;
  end_turn();
  return turn_;
}

/// A turn of the loop is all that runs while each round of its ready handlers sends more: what a
/// coroutine that finds one result after another sends in answer goes out together.
inline void link_host::end_turn() noexcept {
  post_or_die(env_.context, [this] {
    constexpr int most_rounds = 16;
    if (std::exchange(turn_grew_, false) && ++turn_rounds_ < most_rounds) return end_turn();
    while (std::exchange(turn_held_, false)) batch_ends(*this);
    late_.end_turn();
  });
}

}  // namespace weft::engine
