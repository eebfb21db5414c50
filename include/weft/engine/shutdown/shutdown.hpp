// SPDX-License-Identifier: BSL-1.0
// Room shutdown: when and how a run ends. States and counts only, without a clock, a socket or a
// thread: worker/impl/worker_run.hpp and worker_end.hpp act on them. Includes core/ alone. Beside
// this file: how requests are counted (drain.hpp), links that break between others (cut_links.hpp),
// the states of one worker's end (ending.hpp).
//
// This file is the protocol, over a star around rank 0.
//
//   worker r                     rank 0                       everybody
//     main returned ─ finished ─►  all finished?  ─ count ─────► how many requests are done?
//     (drain)
//                    ─ counts ──►  all done?      ─ ended ─────► stop, exit 0
//     main threw    ─ failed ───►  ─ lost(who, why) ───────────► calls fail, exit non-zero
//     (link lost) ───────────────► ─ lost(r, why) ─────────────►
//     loses rank 0: the same, for itself
//
// Where the run goes on without r, its failure or loss is
//
//     worker r                     rank 0                       the others
//     main threw    ─ failed ───►  ─ gone(r, why) ─────────────► their links to it are down
//     (link lost) ───────────────► ─ gone(r, why) ─────────────►
//     (no answer at the end) ────► ─ gone(r, why) ─────────────►   and r, which ends for itself
//
// and r counts as finished, is asked no more, and what it still says is not heard. Only rank 0
// decides so: whoever else loses its link to r goes on as it would in any run. If r blames another
// that rank 0 has not lost, it is r that is left behind, and told so.
//
// A link between two workers, neither of them rank 0, that breaks while both live:
//
//     worker p, q                  rank 0                       the others
//     (link lost) ─ cut_off ────►  both ends have counted, or    ─ lost(q, why) ─► as above, or
//                                  one, for long enough          ─ gone(q, why) ─► if q may go
//
// where q is the higher rank, unless only the other one may go. `why` says how many posts did not
// run. If rank 0 loses p or q itself meanwhile, that loss is the verdict. A main that fails because
// of the other end waits for this verdict, too.
//
// Whoever leaves at rank 0's word passes it on before it closes its links: the word may be slower
// on its other ways, and who saw a closed link first would blame the one that left. What one that
// may go passes on is believed only once rank 0 cannot be heard any more.
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/shutdown/cut_links.hpp>
#include <weft/engine/shutdown/drain.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::engine {

/// Payload of a control frame: {what 1, rank 4, text}; for `count`, `counts` and `cut_off` then
/// {round 8}, for the last two then {n 4, n times {peer 4, sent 8, finished 8, down 1}}. `gone` is
/// as `lost`, comes from rank 0 only, and names another worker than rank 0; to that one it says
/// that the run goes on without it. `cut_off` has the counts of one peer: the posts that were sent
/// to it, those of its posts that ran, and whether the link was ever there (`down`); its `round` is
/// how many of the peer's posts still run.
struct shutdown_message {
  enum class kind : std::uint8_t {
    finished = 1,
    failed = 2,
    lost = 3,
    ended = 4,
    count = 5,
    counts = 6,
    gone = 7,
    cut_off = 8
  };
  kind what = kind::finished;
  std::uint32_t rank = 0;   ///< the worker it is about
  std::string why;          ///< empty unless failed, lost or gone
  std::uint64_t round = 0;  ///< of count, counts and cut_off
  work_report report{};     ///< of counts and cut_off

  [[nodiscard]] static constexpr bool has_report(kind k) noexcept {
    return k == kind::counts || k == kind::cut_off;
  }
  [[nodiscard]] static constexpr bool has_round(kind k) noexcept {
    return k == kind::count || has_report(k);
  }
};

/// Most bytes of `why` in a message: they fit into the smallest payload.
inline constexpr std::size_t most_words = std::size_t{128} * 1024;

/// Most control frames of one peer that may wait for the worker's thread: it may have lost all
/// others at once, and each worker's loss is told once; all else is a few.
[[nodiscard]] constexpr std::size_t most_controls(std::size_t world) noexcept { return 64 + world; }
/// What the longest of them takes, with room to spare: its words, and the counts of all others.
[[nodiscard]] constexpr std::uint64_t most_control_bytes(std::size_t world) noexcept {
  return (256u << 10) + 64 * std::uint64_t{world};
}

/// `why` as it came, fit to be shown: no longer than what is sent, and of one line.
[[nodiscard]] inline std::string fit_to_show(std::string why) {
  if (why.size() > most_words) why.resize(most_words);
  for (char& c : why) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return why;
}

/// One worker's view. `step`s are called by the worker, which carries out the returned actions.
class shutdown_protocol {
 public:
  struct actions {
    std::vector<std::pair<std::uint32_t, shutdown_message>> send;  ///< to rank
    std::optional<std::pair<std::uint32_t, std::string>> lost;     ///< that worker is gone
    bool end = false;                                              ///< leave `run` now
    std::optional<std::uint64_t> count;  ///< answer at once, by `counted` with that round
    std::optional<std::chrono::milliseconds> ask_again;  ///< call `ask_again` after that long
    /// Call `unanswered` with it when the other end, or the loss of one of the two, should have
    /// been heard of; `waits_for` says whether it is one that an end has reported.
    std::optional<link_ends> wait_for;
    /// Call `link_cut` with it. It may come twice: with one end's counts, then with those of both.
    std::optional<cut_link> cut;
  };

  shutdown_protocol(std::uint32_t rank, std::uint32_t size)
      : rank_(rank),
        done_(size, false),
        gone_(size, false),
        may_go_(size, false),
        drain_(rank == 0 ? size : 0) {}

  /// The run goes on without that worker if it is lost; not so rank 0. Before all other steps, the
  /// same at all workers.
  void may_go(std::uint32_t who) { may_go_[who] = who != 0; }

  /// This worker's main returned.
  actions main_returned() {
    returned_ = true;
    if (rank_ == 0) return on_finished(0);
    actions out;
    if (!over_) out.send.push_back({0, {shutdown_message::kind::finished, rank_, {}}});
    return out;
  }
  /// This worker's main threw; `blamed` is this worker, or the lost one whose loss it threw. Then
  /// rank 0 decides: it may know a better reason. Who cannot bear a loss that the run bears has
  /// failed itself.
  actions main_failed(std::uint32_t blamed, std::string why) {
    if (over_) return {};
    const bool of_another = may_go_[blamed] && blamed != rank_;
    if (of_another) blamed = rank_;
    if (rank_ == 0)
      return blamed == 0 ? fail(0, std::move(why)) : accuse(0, blamed, std::move(why));
    actions out;
    out.send.push_back({0, {shutdown_message::kind::failed, blamed, why}});
    if (blamed == rank_) {  // nothing below throws: who lacked memory may try again
      failure_.emplace(blamed, std::move(why));
      // Whose loss it cannot bear may have left for a reason, and said so.
      if (of_another && unconfirmed_verdict_)
        failure_.emplace(unconfirmed_verdict_->rank, std::move(unconfirmed_verdict_->why));
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
      if (over_ || gone_[from]) return actions{};
      // Had this worker lost the other, too, the run would be over, or go on without it: one that
      // may go has broken its own link, and does not take with it those who are well.
      if (m.rank != from && may_go_[from]) return exclude(from, m.why);
      if (may_go_[m.rank]) return mark_down(from, m.why);
      return m.rank == from ? fail(from, m.why) : accuse(from, m.rank, m.why);
    case kind::lost:
      if (rank_ == 0) return std::nullopt;
      if (over_) return actions{};
      if (from == 0 || !may_go_[from]) return believe(m);
      // As long as rank 0 can be heard, the run does not depend on what that one says.
      if (!unconfirmed_verdict_) unconfirmed_verdict_ = m;
      return actions{};
    case kind::ended: {
      if (from != 0 || rank_ == 0) return std::nullopt;
      actions out;
      out.end = !over_;
      over_ = true;
      return out;
    }
    case kind::gone: {
      if (from != 0 || rank_ == 0 || m.rank == 0) return std::nullopt;
      if (over_ || gone_[m.rank]) return actions{};
      actions out;
      if (m.rank == rank_) {  // it tells nobody: the others are well, and go on
        failure_.emplace(m.rank, m.why);
        over_ = true;
        out.end = true;
      } else {
        out.lost = {m.rank, m.why};
        gone_[m.rank] = true;
      }
      return out;
    }
    case kind::count: {
      if (from != 0 || rank_ == 0 || !returned_) return std::nullopt;
      actions out;
      if (!over_) out.count = m.round;
      return out;
    }
    case kind::counts:
      if (rank_ != 0 || m.rank != from) return std::nullopt;
      if (gone_[from]) return actions{};
      if (finished_ < done_.size()) return std::nullopt;
      return over_ ? actions{} : on_counts(from, m.round, m.report);
    case kind::cut_off:
      if (rank_ != 0 || from == m.rank || m.rank == 0) return std::nullopt;
      if (m.report.size() != 1 || m.report.front().peer != m.rank) return std::nullopt;
      return on_cut_off(from, m);
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
  actions ask_again() {
    actions out;
    if (over_) return out;
    out.send.reserve(done_.size());
    ask(out);
    return out;
  }
  /// Rank 0, when no more time is left: why the requests are not all done. Nothing if every main
  /// has not even returned, or the run is over.
  [[nodiscard]] std::optional<drain::shortfall> unfinished() const {
    if (over_ || rank_ != 0 || finished_ < done_.size()) return std::nullopt;
    return drain_.missing();
  }
  /// Rank 0: ends the run because of `who`, for which it waited long enough, say; tells it, too.
  actions cut(std::uint32_t who, std::string why) {
    if (over_) return {};
    std::pair<std::uint32_t, shutdown_message> it_too{who,
                                                      {shutdown_message::kind::lost, who, why}};
    actions out = fail(who, std::move(why));
    if (who != rank_) out.send.push_back(std::move(it_too));  // there is room
    return out;
  }
  /// Rank 0, of one that did not answer: as `cut`, unless the run goes on without it.
  actions exclude(std::uint32_t who, std::string why) {
    if (over_ || gone_[who]) return {};
    if (!may_go_[who]) return cut(who, std::move(why));
    std::pair<std::uint32_t, shutdown_message> it_too{who,
                                                      {shutdown_message::kind::gone, who, why}};
    actions out = leave(who, std::move(why));
    out.send.push_back(std::move(it_too));  // there is room
    return out;
  }
  /// The link to `peer` broke.
  actions link_lost(std::uint32_t peer, std::string why) {
    if (over_) return {};
    // A worker serves until everybody is done, so losing it after its main ends the run too.
    if (rank_ == 0) return gone_[peer] ? actions{} : mark_down(peer, std::move(why));
    if (peer != 0) return {};  // rank 0 notices too, and tells
    if (unconfirmed_verdict_) return believe(*unconfirmed_verdict_);
    over_ = true;
    failure_ = {0, std::move(why)};
    actions out;
    out.end = true;
    return out;
  }

  /// What this worker, not rank 0, has counted of a link to another one that broke.
  actions counted_posts(const peer_counts& counts, std::uint64_t run, std::string why) const {
    actions out;
    if (over_ || counts.peer == 0) return out;
    out.send.push_back(
        {0, {shutdown_message::kind::cut_off, counts.peer, std::move(why), run, {counts}}});
    return out;
  }
  /// Rank 0: it has waited long enough for more about that link.
  actions unanswered(link_ends which) {
    actions out;
    if (over_) return out;
    if (auto cut = cuts_.take(which); cut && !gone_[which.low] && !gone_[which.high]) {
      out.cut = std::move(cut);
    } else if (accused_ && accused_->of == which) {
      if (!cuts_.involve(accused_->who)) {
        return this->cut(accused_->who, std::move(accused_->why));  // it may be well: it hears why
      }
      out.wait_for = which;
    }
    return out;
  }
  /// Rank 0: a link of which one end has been heard.
  [[nodiscard]] std::optional<link_ends> waits_for() const {
    if (over_) return std::nullopt;
    return cuts_.open();
  }
  [[nodiscard]] bool waits_for(link_ends which) const { return cuts_.waits(which); }
  /// Rank 0: what becomes of the run by that link; `why` is what `actions::cut` says, in words.
  actions link_cut(link_ends which, std::string why) {
    if (over_ || gone_[which.low] || gone_[which.high]) return {};
    return exclude(may_go_[which.low] && !may_go_[which.high] ? which.low : which.high,
                   std::move(why));
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
  /// Whether the run goes on without that worker, as far as this one has heard.
  [[nodiscard]] bool gone(std::uint32_t who) const { return gone_[who]; }
  /// The worker that ended the run, and why; none after a good end.
  [[nodiscard]] const std::optional<std::pair<std::uint32_t, std::string>>& failure() const {
    return failure_;
  }
  /// What this worker, before it leaves, tells the others but rank 0 and the one that failed.
  [[nodiscard]] std::optional<shutdown_message> final_message() const {
    if (!told_) return std::nullopt;
    return shutdown_message{shutdown_message::kind::lost, failure_->first, failure_->second};
  }

 private:
  actions on_finished(std::uint32_t who) {
    actions out;
    if (over_ || gone_[who]) return out;
    out.send.reserve(done_.size());  // before anything changes
    finish(who);
    if (finished_ == done_.size() && !asked_) ask(out);
    return out;
  }
  void finish(std::uint32_t who) noexcept {
    if (done_[who]) return;
    done_[who] = true;
    ++finished_;
  }
  /// The next three find room in `out.send`, and therefore do not throw.
  void ask(actions& out) noexcept {
    asked_ = true;
    out.count = drain_.ask();
    tell_all(out, shutdown_message::kind::count, *out.count);
  }
  void tell_all(actions& out, shutdown_message::kind what, std::uint64_t round) noexcept {
    for (std::uint32_t r = 1; r < done_.size(); ++r) {
      if (!gone_[r]) out.send.push_back({r, {what, r, {}, round, {}}});
    }
  }
  void follow(drain::step next, actions& out) noexcept {
    switch (next) {
    case drain::step::waiting:
      break;
    case drain::step::ask_again:
      ask(out);
      break;
    case drain::step::ask_again_later:
      out.ask_again = drain_.pause();
      break;
    case drain::step::done:
      tell_all(out, shutdown_message::kind::ended, 0);
      out.end = true;
      over_ = true;
    }
  }
  std::optional<actions> on_counts(std::uint32_t from, std::uint64_t round, work_report report) {
    actions out;
    out.send.reserve(done_.size());  // before anything changes
    const auto next = drain_.answer(from, round, std::move(report));
    if (!next) return std::nullopt;
    follow(*next, out);
    return out;
  }
  /// Rank 0: one end of a link says that it broke.
  actions on_cut_off(std::uint32_t from, const shutdown_message& m) {
    actions out;
    const link_ends which = link_ends::of(from, m.rank);
    if (over_ || (gone_[from] && gone_[m.rank])) return out;
    // The one that is gone may have said its part before.
    const bool news =
        cuts_.add(from, m.report.front(), m.round, m.why, gone_[from] || gone_[m.rank]);
    if (cuts_.complete(which)) {
      out.cut = cuts_.take(which);
    } else if (news) {
      out.wait_for = which;
    }
    return out;
  }
  /// Rank 0: the main of `by` failed because `who` is lost, of which rank 0 knows nothing. It may
  /// still hear of that, or of a link that broke.
  actions accuse(std::uint32_t by, std::uint32_t who, std::string why) {
    actions out;
    if (accused_) return out;
    out.wait_for = link_ends::of(by, who);
    accused_ = accusation{*out.wait_for, who, std::move(why)};
    return out;
  }
  /// Rank 0's verdict, from itself or passed on.
  actions believe(const shutdown_message& m) {
    actions out;
    if (m.rank != rank_) out.lost = {m.rank, m.why};
    failure_.emplace(m.rank, m.why);
    over_ = told_ = true;
    out.end = true;
    return out;
  }
  /// Rank 0.
  actions mark_down(std::uint32_t who, std::string why) {
    return may_go_[who] ? leave(who, std::move(why)) : fail(who, std::move(why));
  }
  /// Rank 0: the run goes on without `who`.
  actions leave(std::uint32_t who, std::string why) {
    actions out;
    out.send.reserve(2 * done_.size());
    tell_of(out, shutdown_message::kind::gone, who, why);
    out.lost.emplace(who, std::move(why));
    gone_[who] = true;  // nothing below throws, as in `fail`
    finish(who);
    const drain::step next = drain_.leave(who);
    if (asked_) {
      follow(next, out);
    } else if (finished_ == done_.size()) {
      ask(out);
    }
    return out;
  }
  actions fail(std::uint32_t who, std::string why) {
    actions out;
    out.send.reserve(done_.size());
    tell_of(out, shutdown_message::kind::lost, who, why);
    if (who != rank_) out.lost = {who, why};
    out.end = true;
    failure_.emplace(who, std::move(why));  // last: who lacked memory may try again
    over_ = true;
    return out;
  }
  void tell_of(actions& out, shutdown_message::kind what, std::uint32_t who,
               const std::string& why) {
    for (std::uint32_t r = 1; r < done_.size(); ++r) {
      if (r != who && !gone_[r]) out.send.push_back({r, {what, who, why}});
    }
  }

  std::uint32_t rank_;
  std::vector<bool> done_;  // rank 0's: mains that have returned, or are waited for no more
  std::size_t finished_ = 0;
  std::vector<bool> gone_;
  std::vector<bool> may_go_;
  drain drain_;         // rank 0's
  bool asked_ = false;  // rank 0: the first round has begun
  bool returned_ = false;
  bool over_ = false;
  bool told_ = false;                                    // by rank 0, or in its words
  std::optional<shutdown_message> unconfirmed_verdict_;  // `lost`, passed on by one that may go
  cut_links cuts_;                                       // rank 0's
  struct accusation {
    link_ends of;
    std::uint32_t who;
    std::string why;
  };
  std::optional<accusation> accused_;  // rank 0's: of the first main that failed because of another
  std::optional<std::pair<std::uint32_t, std::string>> failure_;
};

}  // namespace weft::engine
