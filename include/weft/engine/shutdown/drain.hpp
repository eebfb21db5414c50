// SPDX-License-Identifier: BSL-1.0
// When the requests of a run are all done: pure protocol of rank 0, by Mattern's double counting.
//
//   rank 0   every main has returned ─ count(1) ─► all   each answers at once with its counts
//            all answered, uneven    ─ count(2) ─► …     after a pause that grows
//            even twice, unchanged   ─ done
//            a worker is left behind: what went to it and came from it counts no more
//            a link between two others is lost: never even, until rank 0 decides about the two
//
// One even round is no proof: counts of different moments may agree by chance while a request that
// one of them saw and the other did not is under way. A request counts as sent before it leaves,
// and as finished after all that its function sent; two equal even rounds therefore leave nothing.
#pragma once

#include <weft/engine/fwd.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace weft::engine {

/// What one worker counted of its requests to and from one other, or itself.
struct peer_counts {
  std::uint32_t peer = 0;
  std::uint64_t sent = 0;      ///< to the peer
  std::uint64_t finished = 0;  ///< of those that came from it
  bool down = false;           ///< their link is lost, with posts that may be lost, too
  [[nodiscard]] bool operator==(const peer_counts&) const = default;
};
/// By rank, ascending; whoever is not in it has counts of zero.
using work_report = std::vector<peer_counts>;

class drain {
 public:
  enum class step : std::uint8_t { waiting, ask_again_later, ask_again, done };
  /// Why it is not done, by what each worker said last.
  struct shortfall {
    std::vector<std::uint32_t> unanswered{};  ///< who has not answered the last round
    std::uint32_t worker = 0;                 ///< who owes the most requests to one other
    std::uint32_t sender = 0;                 ///< that other
    std::uint64_t missing = 0;                ///< how many
    std::uint64_t all = 0;                    ///< everybody's
    /// Nobody owes anything, but `worker` sent more requests in a round than before, and more than
    /// others.
    bool growing = false;
  };

  explicit drain(std::uint32_t size)
      : now_(size), before_(size), grown_(size), answered_(size, false), gone_(size, false) {}

  /// Begins a round, for all but those that are gone; its number is the question.
  std::uint64_t ask() noexcept {
    before_.swap(now_);
    for (work_report& r : now_) r.clear();
    answered_ = gone_;
    missing_ = static_cast<std::size_t>(std::count(gone_.begin(), gone_.end(), false));
    return ++round_;
  }
  /// The answer of one worker. Nothing: nobody who keeps to the protocol says that.
  std::optional<step> answer(std::uint32_t from, std::uint64_t round, work_report report) {
    if (round != round_ || from >= now_.size() || answered_[from]) return std::nullopt;
    if (!well_formed(report)) return std::nullopt;
    std::erase_if(report, [&](const peer_counts& c) { return gone_[c.peer]; });
    const std::uint64_t more = all_sent(report), less = all_sent(before_[from]);
    grown_[from] = round_ > 1 && more > less ? more - less : 0;
    now_[from] = std::move(report);
    answered_[from] = true;
    return --missing_ > 0 ? step::waiting : judge();
  }
  /// Goes on without that worker, which may be the last that a round waited for.
  step leave(std::uint32_t who) noexcept {
    if (gone_[who]) return step::waiting;
    gone_[who] = true;
    grown_[who] = 0;
    for (std::vector<work_report>* const all : {&now_, &before_}) {
      (*all)[who].clear();
      for (work_report& r : *all) {
        std::erase_if(r, [&](const peer_counts& c) { return c.peer == who; });
      }
    }
    const bool awaited = round_ > 0 && !answered_[who];
    answered_[who] = true;
    if (!awaited || --missing_ > 0) return step::waiting;
    return judge();
  }
  /// How long to wait after `ask_again_later`.
  [[nodiscard]] std::chrono::milliseconds pause() const noexcept { return pause_; }

  [[nodiscard]] shortfall missing() const {
    shortfall out;
    std::vector<work_report> known = now_;
    for (std::uint32_t r = 0; r < known.size(); ++r) {
      if (answered_[r]) continue;
      known[r] = before_[r];
      out.unanswered.push_back(r);
    }
    each_pair(known, [&](std::uint32_t from, std::uint32_t to, std::uint64_t sent,
                         std::uint64_t finished) {
      if (sent <= finished) return;
      out.all += sent - finished;
      if (sent - finished <= out.missing) return;
      out.worker = to;
      out.sender = from;
      out.missing = sent - finished;
    });
    const auto most = std::max_element(grown_.begin(), grown_.end());
    if (out.all > 0 || most == grown_.end() || *most == 0) return out;
    out.growing = true;
    out.worker = static_cast<std::uint32_t>(most - grown_.begin());
    return out;
  }

 private:
  static constexpr std::chrono::milliseconds longest_pause{64};

  /// Everybody has answered.
  step judge() noexcept {
    if (!even()) {
      even_before_ = false;
      pause_ = std::min(pause_ * 2, longest_pause);
      return step::ask_again_later;
    }
    if (std::exchange(even_before_, true) && now_ == before_) return step::done;
    return step::ask_again;
  }
  [[nodiscard]] static std::uint64_t all_sent(const work_report& report) noexcept {
    std::uint64_t out = 0;
    for (const peer_counts& c : report) out += c.sent;
    return out;
  }
  [[nodiscard]] bool well_formed(const work_report& report) const noexcept {
    std::uint64_t next = 0;
    for (const peer_counts& c : report) {
      if (c.peer < next || c.peer >= now_.size()) return false;
      next = std::uint64_t{c.peer} + 1;
    }
    return true;
  }
  [[nodiscard]] static peer_counts about(const work_report& report, std::uint32_t peer) noexcept {
    const auto at =
        std::lower_bound(report.begin(), report.end(), peer,
                         [](const peer_counts& c, std::uint32_t p) { return c.peer < p; });
    return at != report.end() && at->peer == peer ? *at : peer_counts{peer, 0, 0, false};
  }
  /// visit(from, to, sent, finished) for each direction in which a request went, twice for some.
  template <class Visit>
  static void each_pair(const std::vector<work_report>& all, Visit&& visit) {
    for (std::uint32_t r = 0; r < all.size(); ++r) {
      for (const peer_counts& mine : all[r]) {
        const peer_counts theirs = about(all[mine.peer], r);
        if (mine.down || theirs.down) continue;  // shutdown_protocol::link_cut says what is missing
        visit(r, mine.peer, mine.sent, theirs.finished);
        if (theirs == peer_counts{r, 0, 0, false}) visit(mine.peer, r, theirs.sent, mine.finished);
      }
    }
  }
  [[nodiscard]] bool even() const noexcept {
    bool out = std::none_of(now_.begin(), now_.end(), [](const work_report& r) {
      return std::any_of(r.begin(), r.end(), [](const peer_counts& c) { return c.down; });
    });
    each_pair(now_, [&](std::uint32_t, std::uint32_t, std::uint64_t sent, std::uint64_t finished) {
      out = out && sent == finished;
    });
    return out;
  }

  std::uint64_t round_ = 0;
  std::vector<work_report> now_;
  std::vector<work_report> before_;
  std::vector<std::uint64_t> grown_;  // by how many requests, in the last round that each answered
  std::vector<bool> answered_;        // and those that are gone
  std::vector<bool> gone_;
  std::size_t missing_ = 0;
  bool even_before_ = false;
  std::chrono::milliseconds pause_{1};
};

}  // namespace weft::engine
