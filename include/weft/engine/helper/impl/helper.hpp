// SPDX-License-Identifier: BSL-1.0
// Bodies of ../helper.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/helper/helper.hpp>

#include <utility>

namespace weft::engine {

// ── the worker's thread ──

inline void helper::add(weft::link& l) {
  // What is to be written was pushed under the link's lock, and whoever resets this takes that lock
  // afterwards: it is seen there.
  if (!l.to_flush_.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(mutex_);
    l.to_flush_.store(true, std::memory_order_relaxed);
    dirty_.emplace_back(&l);
  }
  begin_round();
  arm(interval);
}

inline void helper::hold() {
  held_.store(true);  // before it looks whether a tick is set
  begin_round();
  arm(interval);
}

/// It ends behind what is ready now.
inline void helper::begin_round() {
  if (std::exchange(open_, true)) return;
  post_or_die(loop_, [this] { end_round(); });
}

inline void helper::end_round() {
  open_ = false;
  rounds_.fetch_add(1, std::memory_order_relaxed);
  write_all();
}

inline void helper::write_all() {
  if (held_.exchange(false, std::memory_order_relaxed)) me_.round_ends();
  {
    const std::lock_guard lock(mutex_);
    written_.swap(dirty_);
    round_seen_ = false;
  }
  write(written_);
}

inline void helper::write(links& all) noexcept {
  for (const intrusive_ptr<weft::link>& l : all) {
    l->to_flush_.store(false, std::memory_order_relaxed);
    l->write_now();
  }
  all.clear();
}

// ── any thread ──

inline bool helper::put_off(weft::link& l) {
  if (!alarm_) return false;
  if (l.put_off_.load(std::memory_order_relaxed)) return true;  // as in add
  {
    const std::lock_guard lock(mutex_);
    if (!l.put_off_.exchange(true, std::memory_order_relaxed)) put_off_.emplace_back(&l);
  }
  arm(interval);
  return true;
}

inline void helper::arm(std::chrono::microseconds after) noexcept {
  if (!alarm_ || armed_.load()) return;
  if (!armed_.exchange(true)) alarm_->arm(after);
}

// ── the helper's thread ──

/// What it costs the worker to have become slow just now is little beside how long it was not.
inline void helper::arm_later() noexcept {
  constexpr unsigned looks = 8;  // until the interval grows
  const auto after = long_interval * (1 + well_ / looks);
  if (after < longest_interval) ++well_;
  arm(after);
}

inline void helper::ticked() {
  armed_.store(false);
  links now;
  links late;
  bool tells = false;
  bool owes = false;
  {
    const std::lock_guard lock(mutex_);
    late.swap(put_off_);
    if (round_seen_) {  // this round goes on
      now.swap(dirty_);
      tells = held_.exchange(false);
    }
    owes = round_seen_ = !dirty_.empty() || held_.load();
  }
  for (const intrusive_ptr<weft::link>& l : late) {
    l->put_off_.store(false, std::memory_order_relaxed);
    l->write_now();
  }
  if (tells || !now.empty()) well_ = 0;
  write(now);
  if (tells) me_.round_ends();
  if (owes) arm(interval);
  const std::uint64_t rounds = rounds_.load(std::memory_order_relaxed);
  if (arrivals_) {
    take(takeover_.ticked(rounds, answered_.load()));
    // It looks on until all is written. A peer that takes nothing is asked more seldom.
    const std::uint64_t left = me_.left_to_write();
    const bool stuck = left == std::exchange(left_, left);
    const bool writes = takeover_.current_state() == takeover::state::reading;
    if (left > 0) arm(writes && !stuck ? writing_interval : longest_interval);
  } else if (rounds != std::exchange(rounds_seen_, rounds)) {
    arm_later();
  }
}

inline void helper::arrived() { take(takeover_.arrived(answered_.load())); }

inline void helper::take(takeover::steps next) {
  if (next.wait) arrivals_->wait();
  if (next.probe) {
    answered_.store(false);
    probe_(loop_, [this] { answered_.store(true); });
  }
  if (next.read) {
    well_ = 0;
    if (!me_.read_links()) {
      arrivals_->stop();  // what is left out would come again at once
      arm(long_interval);
    }
  }
  if (next.tick) arm(interval);
  if (next.later) arm_later();
}

}  // namespace weft::engine
