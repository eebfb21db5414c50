// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link_host.hpp and ../request_source.hpp.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/log.hpp>
#include <weft/engine/helper/impl/helper.hpp>
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
      helper_(*this, env_.context, env_.alarm, env_.arrivals) {}

inline request_source::request_source(link_host& me, std::uint32_t rank) noexcept
    : weft::link(me, rank), me_(me) {}

inline void link_host::post_failed(std::uint64_t function, std::string_view named,
                                   std::uint32_t from, const error& why) noexcept {
  counts.posts_failed.fetch_add(1, std::memory_order_relaxed);
  if (why == errc::cancelled || why == errc::peer_died) return;
  or_die([&] {
    // What nobody knows has one name: peers choose the number.
    if (!failed_posts_.first(named.empty() ? 0 : function)) return;
    say(name(),
        "a post of " +
            (named.empty() ? std::string("an unknown function") : "'" + std::string(named) + "'") +
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

inline bool link_host::hold() {
  if (on_thread()) {
    helper_.hold();
    return true;
  }
  write_batch* const batch = write_batch::of(*this);
  if (batch) batch->hold();
  return batch != nullptr;
}

}  // namespace weft::engine
