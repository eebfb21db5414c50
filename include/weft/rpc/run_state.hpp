// SPDX-License-Identifier: BSL-1.0
// When a run ends: pure protocol over a star around rank 0.
//
//   worker r                     rank 0                       everybody
//     main returned ─ finished ─►  all finished?  ─ ended ─────► stop, exit 0
//     main threw    ─ failed ───►  ─ lost(who, why) ───────────► calls fail, exit non-zero
//     (link lost) ───────────────► ─ lost(r, why) ─────────────►
//     loses rank 0: the same, for itself
#pragma once

#include <weft/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft {

/// Payload of a control frame: {what 1, rank 4, text}.
struct run_message {
  enum class kind : std::uint8_t { finished = 1, failed = 2, lost = 3, ended = 4 };
  kind what = kind::finished;
  std::uint32_t rank = 0;  ///< the worker it is about
  std::string why;         ///< empty unless failed or lost
};

/// One worker's view. `step`s are called by the worker, which carries out the returned actions.
class run_state {
 public:
  struct actions {
    std::vector<std::pair<std::uint32_t, run_message>> send;    ///< to rank
    std::optional<std::pair<std::uint32_t, std::string>> lose;  ///< that worker is gone
    bool end = false;                                           ///< leave `run` now
  };

  run_state(std::uint32_t rank, std::uint32_t size) : rank_(rank), done_(size, false) {}

  /// This worker's main returned.
  actions main_returned() {
    if (rank_ == 0) return on_finished(0);
    actions out;
    if (!over_) out.send.push_back({0, {run_message::kind::finished, rank_, {}}});
    return out;
  }
  /// This worker's main threw; `blamed` is this worker, or the lost one whose loss it threw. Then
  /// rank 0 decides: it may know a better reason.
  actions main_failed(std::uint32_t blamed, std::string why) {
    if (over_) return {};
    if (rank_ == 0) return fail(blamed, std::move(why));
    actions out;
    if (blamed == rank_) {
      failure_ = {blamed, why};
      over_ = true;
      out.end = true;
    }
    out.send.push_back({0, {run_message::kind::failed, blamed, std::move(why)}});
    return out;
  }
  /// A control frame from `from`. Returns nothing if it breaks the protocol.
  std::optional<actions> received(std::uint32_t from, const run_message& m) {
    using kind = run_message::kind;
    if (m.rank >= done_.size()) return std::nullopt;
    switch (m.what) {
    case kind::finished:
      if (rank_ != 0 || m.rank != from) return std::nullopt;
      return on_finished(from);
    case kind::failed:
      if (rank_ != 0) return std::nullopt;
      return over_ ? actions{} : fail(m.rank, m.why);
    case kind::lost: {
      if (from != 0 || rank_ == 0) return std::nullopt;
      if (over_) return actions{};
      over_ = true;
      failure_ = {m.rank, m.why};
      actions out;
      out.lose = {m.rank, m.why};
      out.end = true;
      return out;
    }
    case kind::ended: {
      if (from != 0 || rank_ == 0) return std::nullopt;
      actions out;
      out.end = !over_;
      over_ = true;
      return out;
    }
    }
    return std::nullopt;
  }
  /// The link to `peer` broke.
  actions link_lost(std::uint32_t peer, std::string why) {
    if (over_) return {};
    // A worker serves until everybody is done, so losing it after its main ends the run too.
    if (rank_ == 0) return fail(peer, std::move(why));
    if (peer != 0) return {};  // rank 0 notices too, and tells
    over_ = true;
    failure_ = {0, std::move(why)};
    actions out;
    out.end = true;
    return out;
  }

  [[nodiscard]] bool over() const noexcept { return over_; }
  /// The worker that ended the run, and why; none after a good end.
  [[nodiscard]] const std::optional<std::pair<std::uint32_t, std::string>>& failure() const {
    return failure_;
  }

 private:
  actions on_finished(std::uint32_t who) {
    if (over_) return {};
    if (!done_[who]) {
      done_[who] = true;
      ++finished_;
    }
    if (finished_ < done_.size()) return {};
    over_ = true;
    actions out;
    for (std::uint32_t r = 1; r < done_.size(); ++r) {
      out.send.push_back({r, {run_message::kind::ended, r, {}}});
    }
    out.end = true;
    return out;
  }
  actions fail(std::uint32_t who, std::string why) {
    failure_ = {who, why};
    return broadcast_loss(who, std::move(why));
  }
  actions broadcast_loss(std::uint32_t who, std::string why) {
    over_ = true;
    actions out;
    for (std::uint32_t r = 1; r < done_.size(); ++r) {
      if (r != who) out.send.push_back({r, {run_message::kind::lost, who, why}});
    }
    if (who != rank_) out.lose = {who, std::move(why)};
    out.end = true;
    return out;
  }

  std::uint32_t rank_;
  std::vector<bool> done_;
  std::size_t finished_ = 0;
  bool over_ = false;
  std::optional<std::pair<std::uint32_t, std::string>> failure_;
};

}  // namespace weft
