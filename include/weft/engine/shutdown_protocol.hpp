// SPDX-License-Identifier: BSL-1.0
// When a run ends: pure protocol over a star around rank 0.
//
//   worker r                     rank 0                       everybody
//     main returned ─ finished ─►  all finished?  ─ count ─────► how many requests are done?
//     (drain)
//                    ─ counts ──►  all done?      ─ ended ─────► stop, exit 0
//     main threw    ─ failed ───►  ─ lost(who, why) ───────────► calls fail, exit non-zero
//     (link lost) ───────────────► ─ lost(r, why) ─────────────►
//     loses rank 0: the same, for itself
//
// Whoever leaves at rank 0's word passes it on before it closes its links: the word may be slower
// on its other ways, and who saw a closed link first would blame the one that left.
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/drain.hpp>
#include <weft/engine/fwd.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::engine {

/// Payload of a control frame: {what 1, rank 4, text}; for `count` and `counts` then {round 8}, for
/// `counts` then {n 4, n times {peer 4, sent 8, finished 8, down 1}}.
struct shutdown_message {
  enum class kind : std::uint8_t {
    finished = 1,
    failed = 2,
    lost = 3,
    ended = 4,
    count = 5,
    counts = 6
  };
  kind what = kind::finished;
  std::uint32_t rank = 0;   ///< the worker it is about
  std::string why;          ///< empty unless failed or lost
  std::uint64_t round = 0;  ///< of count and counts
  work_report report{};     ///< of counts
};

/// One worker's view. `step`s are called by the worker, which carries out the returned actions.
class shutdown_protocol {
 public:
  struct actions {
    std::vector<std::pair<std::uint32_t, shutdown_message>> send;  ///< to rank
    std::optional<std::pair<std::uint32_t, std::string>> lose;     ///< that worker is gone
    bool end = false;                                              ///< leave `run` now
    std::optional<std::uint64_t> count;  ///< answer at once, by `counted` with that round
    std::optional<std::chrono::milliseconds> ask_again;  ///< call `ask_again` after that long
  };

  shutdown_protocol(std::uint32_t rank, std::uint32_t size)
      : rank_(rank), done_(size, false), drain_(rank == 0 ? size : 0) {}

  /// This worker's main returned.
  actions main_returned() {
    returned_ = true;
    if (rank_ == 0) return on_finished(0);
    actions out;
    if (!over_) out.send.push_back({0, {shutdown_message::kind::finished, rank_, {}}});
    return out;
  }
  /// This worker's main threw; `blamed` is this worker, or the lost one whose loss it threw. Then
  /// rank 0 decides: it may know a better reason.
  actions main_failed(std::uint32_t blamed, std::string why) {
    if (over_) return {};
    if (rank_ == 0) return fail(blamed, std::move(why));
    actions out;
    out.send.push_back({0, {shutdown_message::kind::failed, blamed, why}});
    if (blamed == rank_) {  // nothing below throws: who lacked memory may try again
      failure_.emplace(blamed, std::move(why));
      over_ = true;
      out.end = true;
    }
    return out;
  }
  /// A control frame from `from`. Returns nothing if it breaks the protocol.
  std::optional<actions> received(std::uint32_t from, const shutdown_message& m) {
    using kind = shutdown_message::kind;
    if (m.rank >= done_.size()) return std::nullopt;
    switch (m.what) {
    case kind::finished:
      if (rank_ != 0 || m.rank != from) return std::nullopt;
      return on_finished(from);
    case kind::failed:
      if (rank_ != 0) return std::nullopt;
      return over_ ? actions{} : fail(m.rank, m.why);
    case kind::lost: {
      if (rank_ == 0) return std::nullopt;
      if (over_) return actions{};
      actions out;
      if (m.rank != rank_) out.lose = {m.rank, m.why};
      failure_.emplace(m.rank, m.why);
      over_ = told_ = true;
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
    case kind::count: {
      if (from != 0 || rank_ == 0 || !returned_) return std::nullopt;
      actions out;
      if (!over_) out.count = m.round;
      return out;
    }
    case kind::counts:
      if (rank_ != 0 || m.rank != from || finished_ < done_.size()) return std::nullopt;
      return over_ ? actions{} : on_counts(from, m.round, m.report);
    }
    return std::nullopt;
  }
  /// This worker's counts, asked for in that round.
  actions counted(std::uint64_t round, work_report mine) {
    if (over_) return {};
    if (rank_ == 0) return on_counts(0, round, std::move(mine)).value_or(actions{});
    actions out;
    out.send.push_back({0, {shutdown_message::kind::counts, rank_, {}, round, std::move(mine)}});
    return out;
  }
  actions ask_again() { return over_ ? actions{} : ask(); }
  /// Rank 0, some time before `unfinished` will be asked.
  void last_call() noexcept { drain_.last_call(); }
  /// Rank 0, when no more time is left: why the requests are not all done. Nothing if every main
  /// has not even returned, or the run is over.
  [[nodiscard]] std::optional<drain::shortfall> unfinished() const {
    if (over_ || rank_ != 0 || finished_ < done_.size()) return std::nullopt;
    return drain_.missing();
  }
  /// Rank 0: ends the run, which waited for `who` long enough; tells it, too.
  actions cut(std::uint32_t who, std::string why) {
    if (over_) return {};
    std::pair<std::uint32_t, shutdown_message> it_too{who,
                                                      {shutdown_message::kind::lost, who, why}};
    actions out = fail(who, std::move(why));
    if (who != rank_) out.send.push_back(std::move(it_too));  // there is room
    return out;
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

  /// Rank 0: whose mains have not returned.
  [[nodiscard]] std::vector<std::uint32_t> running() const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t r = 0; rank_ == 0 && r < done_.size(); ++r) {
      if (!done_[r]) out.push_back(r);
    }
    return out;
  }
  [[nodiscard]] bool over() const noexcept { return over_; }
  /// The worker that ended the run, and why; none after a good end.
  [[nodiscard]] const std::optional<std::pair<std::uint32_t, std::string>>& failure() const {
    return failure_;
  }
  /// What this worker, before it leaves, tells the others but rank 0 and the one that failed.
  [[nodiscard]] std::optional<shutdown_message> parting_words() const {
    if (!told_) return std::nullopt;
    return shutdown_message{shutdown_message::kind::lost, failure_->first, failure_->second};
  }

 private:
  actions on_finished(std::uint32_t who) {
    if (over_) return {};
    if (!done_[who]) {
      done_[who] = true;
      ++finished_;
    }
    if (finished_ < done_.size() || asked_) return {};
    return ask();
  }
  actions ask() {
    asked_ = true;
    actions out;
    out.count = drain_.ask();
    for (std::uint32_t r = 1; r < done_.size(); ++r) {
      out.send.push_back({r, {shutdown_message::kind::count, r, {}, *out.count, {}}});
    }
    return out;
  }
  std::optional<actions> on_counts(std::uint32_t from, std::uint64_t round, work_report report) {
    actions out;
    out.send.reserve(done_.size());  // before anything changes
    const auto next = drain_.answer(from, round, std::move(report));
    if (!next) return std::nullopt;
    switch (*next) {
    case drain::step::waiting:
      break;
    case drain::step::ask_again:
      return ask();
    case drain::step::ask_again_later:
      out.ask_again = drain_.pause();
      break;
    case drain::step::done:
      for (std::uint32_t r = 1; r < done_.size(); ++r) {
        out.send.push_back({r, {shutdown_message::kind::ended, r, {}}});
      }
      out.end = true;
      over_ = true;
    }
    return out;
  }
  actions fail(std::uint32_t who, std::string why) {
    actions out;
    out.send.reserve(done_.size());
    for (std::uint32_t r = 1; r < done_.size(); ++r) {
      if (r != who) out.send.push_back({r, {shutdown_message::kind::lost, who, why}});
    }
    if (who != rank_) out.lose = {who, why};
    out.end = true;
    failure_.emplace(who, std::move(why));  // last: who lacked memory may try again
    over_ = true;
    return out;
  }

  std::uint32_t rank_;
  std::vector<bool> done_;
  std::size_t finished_ = 0;
  drain drain_;         // rank 0's
  bool asked_ = false;  // rank 0: the first round has begun
  bool returned_ = false;
  bool over_ = false;
  bool told_ = false;  // by rank 0, or in its words
  std::optional<std::pair<std::uint32_t, std::string>> failure_;
};

}  // namespace weft::engine
