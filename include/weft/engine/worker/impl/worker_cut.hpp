// SPDX-License-Identifier: BSL-1.0
// Bodies of ../worker.hpp: links between two workers, neither of them rank 0, that break
// while both live. Each end counts its posts and tells rank 0, which decides (shutdown_protocol).
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/log.hpp>
#include <weft/engine/link/link.hpp>
#include <weft/engine/worker/worker.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace weft::engine {

// ── at each end ──

/// Posts that have begun end or are cancelled, for which they have a second.
inline void worker::count_posts(link& broken, std::string why) {
  if (run_.over()) return;
  if (broken.broke()) {
    uncounted_.push_back(
        {broken.rank(), std::move(why), later(env_.time.now(), std::chrono::seconds(1))});
  }
  tell_counts();
}

inline void worker::tell_counts() {
  const time_point now = env_.time.now();
  const auto told = [&](const uncounted& u) {
    const link& broken = links_[u.rank];
    if (broken.posts_under_way() > 0 && now < u.until && !run_.over()) return false;
    const peer_counts posts = broken.carried_posts();
    // One that ends in between is in neither number, rather than in both.
    act(run_.counted_posts(posts, broken.posts_under_way(), u.why));
    return true;
  };
  std::erase_if(uncounted_, told);
  if (uncounted_.empty()) {
    if (const auto round = std::exchange(round_, std::nullopt)) answer_count(*round);
    if (threw_for_) main_threw(std::exchange(threw_for_, nullptr));
    return;
  }
  if (!counts_) counts_ = env_.time.make_timer(env_.context);
  arm_or_die(*counts_, now + std::chrono::milliseconds(1), [this] { tell_counts(); });
}

/// Rank 0 hears of a broken link before it hears that a main failed for that reason, and before it
/// hears the counts of all requests, which may end the run.
inline bool worker::counts_first() const {
  if (rank() == 0 || run_.over()) return false;
  return !uncounted_.empty() || std::any_of(links_.begin(), links_.end(), [this](const link& l) {
    return l.rank() != 0 && l.rank() != rank() && l.broke() && !l.settled();
  });
}

inline void worker::answer_count(std::uint64_t round) {
  if (counts_first()) {
    round_ = round;
  } else {
    act(run_.counted(round, report()));
  }
}

// ── at rank 0 ──

/// The other end, or the loss of one of the two, is heard of within the two looks of the slower one
/// and the second that its posts have; if not, the other end does not know that the link broke.
/// Where no end has reported one yet, the report is on its way, or there is none.
inline void worker::wait_for_other_end(link_ends which) {
  duration patience = std::chrono::milliseconds(1500);
  if (run_.waits_for(which)) patience = 2 * heartbeat_interval_ + std::chrono::seconds(2);
  alarm(cuts_[which], later(env_.time.now(), patience), std::chrono::milliseconds(500),
        [this, which] {
          // Whoever has not greeted rank 0 is missed by that, and a lost one is about to be told.
          const bool gone = run_.gone(which.low) || run_.gone(which.high);
          if (!gone && !reached(which)) return wait_for_other_end(which);
          act(run_.unanswered(which));
        });
}

/// By rank 0.
inline bool worker::reached(link_ends which) const {
  const auto up = [this](std::uint32_t r) {
    const link* l = links_.find(r);
    return r == rank() || (l && l->current_state() == link::state::up);
  };
  return up(which.low) && up(which.high);
}

/// "'a' (rank 1)"
inline std::string worker::named(std::uint32_t who) const {
  return "worker '" + members_.members[who].name + "' (rank " + std::to_string(who) + ")";
}

/// What did not run to its end of the posts of one worker to another, in words; empty: nothing.
inline std::string worker::lost_posts(std::uint32_t from, std::uint32_t to,
                                      const cut_link::way& way) const {
  const std::string between = " posts of " + named(from) + " to " + named(to);
  const bool decided = run_.gone(from) || run_.gone(to);  // who stays will say the rest
  if (!way.sent) {
    return decided && !run_.gone(from)
               ? ""
               : "; it is not known how many" + between + " did not run to their end";
  }
  if (!way.ran && decided && !run_.gone(to)) return {};
  std::string out;
  if (way.lost() > 0) {
    out += "; " + std::string(way.ran ? "" : "up to ") + std::to_string(way.lost()) + " of the " +
           std::to_string(*way.sent) + between + " did not run to their end";
  }
  if (way.run > 0) {
    out += "; " + std::to_string(way.run) + " of the" + between + " still ran a second later";
  }
  return out;
}

inline void worker::judge_cut(const cut_link& cut) {
  const std::uint32_t low = cut.between.low;
  const std::uint32_t high = cut.between.high;
  const std::string what = "the link between " + named(low) + " and " + named(high) + " was lost" +
                           (reached(cut.between) ? ", though both can be reached" : "") + ": " +
                           cut.why;
  const auto lost = [&] { return lost_posts(low, high, cut.up) + lost_posts(high, low, cut.down); };
  const bool told = env_.says_losses && !run_.gone(low) && !run_.gone(high);  // with who is left
  const std::string before = lost();
  act(run_.link_cut(cut.between, what + before));
  const std::string now = lost();
  if (now.empty() || run_.over()) return;
  if (!told || now != before) say(name(), what + now);
  const auto some = [this](std::uint32_t from, std::uint32_t to, const cut_link::way& way) {
    return way.sent ? way.lost() > 0 && (way.ran || run_.gone(to)) : run_.gone(from);
  };
  if (!some(low, high, cut.up) && !some(high, low, cut.down)) return;
  if (lost_posts_ && !cut.complete()) return;
  lost_posts_ = {run_.gone(low) ? low : high, what + now};
}

}  // namespace weft::engine
