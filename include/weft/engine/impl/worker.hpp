// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/engine/worker.hpp.
#pragma once

#include <weft/core/detail/insist.hpp>
#include <weft/engine/impl/link_call.hpp>
#include <weft/engine/impl/request_queue.hpp>
#include <weft/engine/impl/serving.hpp>
#include <weft/engine/impl/worker_connect.hpp>
#include <weft/engine/worker.hpp>
#include <weft/rpc/detail/process_workers.hpp>

#include <asio/detached.hpp>
#include <asio/post.hpp>

#include <algorithm>

namespace weft::engine {

inline worker::worker(worker_parts env, membership all, options settings)
    : weft::worker(env.context, env.time, env.random, std::move(all), std::move(settings)),
      env_(std::move(env)),
      homes_(asio::use_service<weft::detail::homes>(env_.context)),
      deadlines_(env_.time, env_.context),
      buffers_(options_.buffer_cache_bytes),
      memory_(make_intrusive<memory_budget>(options_.bounds.worker_tensor_bytes, nullptr)),
      salt_(random_()),
      late_(env_.alarm, env_.time),
      run_(members_.rank, members_.size()),
      pulse_(options_.lost_after > duration(0)
                 ? std::min<duration>(options_.lost_after / 5, std::chrono::seconds(2))
                 : std::chrono::seconds(2)) {
  for (std::uint32_t r = 0; r < members_.size(); ++r) {
    // A worker talks to itself without leaving its thread.
    asio::io_context& io =
        env_.io.empty() || r == members_.rank ? env_.context : *env_.io[r % env_.io.size()];
    links_.push_back(make_intrusive<link>(*this, r, io));
  }
  homes_.enter(*this);
  try {
    process_workers::add(*this);
  } catch (...) {
    homes_.leave(*this);
    throw;
  }
}

inline worker::~worker() {
  process_workers::remove(*this);
  homes_.leave(*this);
  detach();
  for (const intrusive_ptr<link>& l : links_) {
    l->drop_calls();
    l->drop_waiting();
  }
}

inline void worker::submit(intrusive_ptr<weft::detail::pool_job> job) {
  asio::post(env_.compute, [this, job = std::move(job)] {
    const running_functions::item here(running_, "weft::on_pool", name(), time_.now());
    job->run();
  });
}

inline bool worker::left_alone() {
  return requests_.empty() && !late_.in_turn() && !main_again_ && !handler_again_ &&
         std::all_of(links_.begin(), links_.end(),
                     [](const intrusive_ptr<link>& l) { return l->use_count() == 1; });
}

inline worker_stats worker::stats() const noexcept {
  worker_stats out;
  out.calls = counts.calls;
  out.served = counts.served;
  out.posts_failed = counts.posts_failed;
  out.creations_failed = counts.creations_failed;
  out.late_replies = counts.late_replies;
  out.frames_sent = counts.frames_sent;
  out.frames_received = counts.frames_received;
  out.bytes_sent = counts.bytes_sent;
  out.bytes_received = counts.bytes_received;
  return out;
}

inline void worker::post_failed(std::uint64_t function, std::string_view named, std::uint32_t from,
                                const error& why) noexcept {
  counts.posts_failed.fetch_add(1, std::memory_order_relaxed);
  if (why == errc::cancelled || why == errc::peer_died) return;
  try {
    // What nobody knows has one name: peers choose the number.
    if (!failed_posts_.first(named.empty() ? 0 : function)) return;
    say(name(), "a post of " +
                    (named.empty() ? std::string("a function that is not here")
                                   : "'" + std::string(named) + "'") +
                    " by worker '" + members_.members[from].name + "' failed: " + why.message() +
                    "; others of this function are only counted (posts_failed)");
  } catch (...) {  // it is counted
  }
}

inline void worker::creation_failed(std::uint64_t function, std::uint32_t from,
                                    const error& why) noexcept {
  counts.creations_failed.fetch_add(1, std::memory_order_relaxed);
  if (why == errc::cancelled || why == errc::peer_died) return;
  try {
    if (!failed_creations_.first(function)) return;
    say(name(), "a make or remote by worker '" + members_.members[from].name +
                    "' failed, and nobody asked for its object: " + why.message() +
                    "; others of this function are only counted (creations_failed)");
  } catch (...) {  // it is counted
  }
}

// ── turns of the loop ──

inline std::uint64_t worker::turn() noexcept {
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
inline void worker::end_turn() noexcept {
  end_turn_(env_.context, [this] {
    constexpr int most_rounds = 16;
    if (std::exchange(turn_grew_, false) && ++turn_rounds_ < most_rounds) return end_turn();
    while (std::exchange(turn_held_, false)) batch_ends(*this);
    late_.end_turn();
  });
}

}  // namespace weft::engine
