// SPDX-License-Identifier: BSL-1.0
// Bodies of ../worker.hpp.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/link/impl/link_call.hpp>
#include <weft/engine/serving/impl/forwarding.hpp>
#include <weft/engine/serving/impl/link_host.hpp>
#include <weft/engine/serving/impl/request_queue.hpp>
#include <weft/engine/serving/impl/serving.hpp>
#include <weft/engine/worker/impl/worker_connect.hpp>
#include <weft/engine/worker/worker.hpp>
#include <weft/rpc/detail/process_workers.hpp>

#include <algorithm>

namespace weft::engine {

inline worker::worker(worker_parts env, membership all, options settings)
    : link_host(std::move(env), std::move(all), std::move(settings)),
      owners_(asio::use_service<weft::detail::context_owners>(env_.context)),
      links_(members_.size(),
             [this](std::uint32_t r) {
               // A worker talks to itself without leaving its thread.
               asio::io_context& io = env_.io.empty() || r == members_.rank
                                          ? env_.context
                                          : *env_.io[r % env_.io.size()];
               return make_intrusive<link>(*this, r, io);
             }),
      run_(members_.rank, members_.size()),
      heartbeat_interval_(options_.lost_after > duration(0)
                              ? std::min<duration>(options_.lost_after / 5, std::chrono::seconds(2))
                              : std::chrono::seconds(2)) {
  or_die([this] {
    owners_.enter(*this);
    process_workers::add(*this, name());
  });
}

inline worker::~worker() {
  process_workers::remove(*this);
  owners_.leave(*this);
  or_die([this] {
    detach();
    drop_calls();
    requests().drop();
  });
}

inline void worker::submit(intrusive_ptr<weft::detail::pool_job> job) {
  post_or_die(env_.compute, [this, job = std::move(job)] {
    const running_functions::item here(running(), "weft::on_pool", name(), time_.now());
    job->run();
  });
}

inline bool worker::is_idle() {
  return requests().size() == 0 && !helper().round_open() &&
         std::all_of(links_.begin(), links_.end(),
                     [](const link& l) { return l.use_count() == 1; });
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

}  // namespace weft::engine
