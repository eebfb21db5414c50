// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/live_worker.hpp.
#pragma once

#include <weft/core/detail/insist.hpp>
#include <weft/rpc/impl/live_worker_connect.hpp>
#include <weft/rpc/live_worker.hpp>

#include <asio/detached.hpp>
#include <asio/post.hpp>

#include <algorithm>

namespace weft::detail {

template <class T>
live_worker<T>::live_worker(environment env, membership all, options settings)
    : worker(std::move(env), std::move(all), std::move(settings)),
      buffers_(options_.pool_bytes),
      memory_(make_ref<memory_budget>(options_.bounds.worker_tensor_bytes, nullptr)),
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
    links_.push_back(make_ref<live_link<T>>(*this, r, io));
  }
}

template <class T>
live_worker<T>::~live_worker() {
  stop_pool();
  detach();
  for (const ref<live_link<T>>& l : links_) {
    l->drop_calls();
    l->drop_waiting();
  }
  for (const ref<coroutine_runner<T>>& runner : idle_runners_) runner->drop();
}

// ── from I/O threads ──

template <class T>
void live_worker<T>::hand_over(ref<live_link<T>> from, frame f, error lacking) {
  put_in({std::move(from), std::move(f), std::move(lacking), nullptr});
}
template <class T>
void live_worker<T>::hand_over(ref<invocation> call) {
  put_in({nullptr, {}, {}, std::move(call)});
}
template <class T>
void live_worker<T>::put_in(handed&& what) {
  const bool wake = insist([&] {
    const std::lock_guard lock(inbox_mutex_);
    if (inbox_.size() == inbox_.capacity()) inbox_.reserve(2 * inbox_.size() + 16);
    inbox_.push_back(std::move(what));
    return inbox_.size() == 1;
  });
  if (wake) wake_inbox_(env_.context, [this] { drain(); });
}
/// A coroutine that waits for a request, or a new one.
template <class T>
ref<coroutine_runner<T>> live_worker<T>::runner() {
  while (!idle_runners_.empty()) {
    ref<coroutine_runner<T>> idle = std::move(idle_runners_.back());
    idle_runners_.pop_back();
    if (idle->reusable()) return idle;
    idle->drop();
  }
  auto done = [this](const ref<coroutine_runner<T>>& runner, invocation& ended) {
    static_cast<live_link<T>&>(ended.from()).coroutine_ended(ended);
    if (idle_runners_.size() < most_idle_runners) {
      idle_runners_.push_back(runner);
    } else {
      runner->retire();
    }
  };
  auto fresh = make_ref<coroutine_runner<T>>(std::move(done));
  fresh->begin(env_.context);
  return fresh;
}

template <class T>
void live_worker<T>::drain() {
  {
    const std::lock_guard lock(inbox_mutex_);
    draining_.swap(inbox_);
  }
  cork cork(*this, &late_);
  std::size_t since_flush = 0;
  for (handed& h : draining_) {
    if (since_flush > 0) cork.before_handler();
    if (h.call) {
      auto& from = static_cast<live_link<T>&>(h.call->from());
      from.start_coroutine(std::move(h.call));
    } else {
      try {
        h.from->handle_here(std::move(h.f), std::move(h.lacking));
      } catch (...) {
        h.from->lose(caught(*this, execution::maybe_executed));
      }
    }
    if (++since_flush == 32) {
      cork.flush();
      since_flush = 0;
    }
  }
  draining_.clear();
}

template <class T>
std::uint64_t live_worker<T>::turn() noexcept {
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
template <class T>
void live_worker<T>::end_turn() noexcept {
  end_turn_(env_.context, [this] {
    constexpr int most_rounds = 16;
    if (std::exchange(turn_grew_, false) && ++turn_rounds_ < most_rounds) return end_turn();
    while (std::exchange(turn_held_, false)) batch_ends(*this);
    late_.end_turn();
  });
}

}  // namespace weft::detail
