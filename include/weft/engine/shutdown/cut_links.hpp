// SPDX-License-Identifier: BSL-1.0
// Links between two workers, neither of them rank 0, that broke while both live: what their two
// ends told rank 0, and how many posts that makes that never ran. Pure: no sockets, no clock.
#pragma once

#include <weft/engine/fwd.hpp>
#include <weft/engine/shutdown/drain.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace weft::engine {

/// The ranks of a link's two ends.
struct link_ends {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  [[nodiscard]] static link_ends of(std::uint32_t a, std::uint32_t b) noexcept {
    return {std::min(a, b), std::max(a, b)};
  }
  [[nodiscard]] auto operator<=>(const link_ends&) const = default;
};

/// One of these links.
struct cut_link {
  /// The posts in one direction. Without `ran`, the receiving end has not said how many ran;
  /// without `sent`, the other one how many there were.
  struct way {
    std::optional<std::uint64_t> sent{};
    std::optional<std::uint64_t> ran{};
    std::uint64_t run{};  ///< more that had begun and not ended, where they were counted
    /// How many did not run, for all that is known.
    [[nodiscard]] std::uint64_t lost() const noexcept {
      const std::uint64_t all = sent.value_or(0);
      const std::uint64_t begun = ran.value_or(0) + run;
      return all - std::min(all, begun);
    }
  };
  link_ends between{};
  std::string why{};  ///< of the end that was heard first, and of the other one
  way up{};           ///< from the lower rank to the higher
  way down{};
  /// Both ends have said what they know.
  [[nodiscard]] bool complete() const noexcept { return up.sent && down.sent; }
};

/// Rank 0's record of them.
class cut_links {
 public:
  /// What the end `from` says; `run` is how many posts of the other one had not ended then. Whether
  /// it is the first of the two to be heard; if one of them is `gone`, only the second is taken.
  bool add(std::uint32_t from, const peer_counts& counts, std::uint64_t run, const std::string& why,
           bool gone) {
    const link_ends between = link_ends::of(from, counts.peer);
    const bool first = !all_.contains(between);
    if (first && gone) return false;
    entry& e = all_[between];
    if (e.cut.complete()) return false;
    if (first) {
      e.cut.between = between;
      e.cut.why = why;
    } else if (why != e.cut.why) {  // often one of the two closed it, and only that one knows why
      e.cut.why += " (at the other end: " + why + ")";
    }
    const bool lower = from == between.low;
    cut_link::way& out = lower ? e.cut.up : e.cut.down;
    cut_link::way& in = lower ? e.cut.down : e.cut.up;
    out.sent = counts.sent;
    in.ran = counts.finished;
    in.run = run;
    if (!counts.down) {  // it was never there: nothing came, and the other end knows nothing
      out.ran = 0;
      in.sent = 0;
    }
    return first;
  }
  /// It is not decided, and one end has been heard.
  [[nodiscard]] bool waits(link_ends between) const {
    const auto at = all_.find(between);
    return at != all_.end() && at->second.waits;
  }
  [[nodiscard]] bool involve(std::uint32_t who) const {
    return std::any_of(all_.begin(), all_.end(), [who](const auto& e) {
      return e.second.waits && (e.first.low == who || e.first.high == who);
    });
  }
  /// Both ends have said what they know, and nobody has taken that.
  [[nodiscard]] bool complete(link_ends between) const {
    const auto at = all_.find(between);
    return at != all_.end() && at->second.cut.complete() && !at->second.whole_taken;
  }
  /// Any that waits.
  [[nodiscard]] std::optional<link_ends> open() const {
    const auto at =
        std::find_if(all_.begin(), all_.end(), [](const auto& e) { return e.second.waits; });
    if (at == all_.end()) return std::nullopt;
    return at->first;
  }
  /// What is known of it: once when it is complete, and once before, if it waits.
  [[nodiscard]] std::optional<cut_link> take(link_ends between) {
    const auto at = all_.find(between);
    if (at == all_.end() || at->second.whole_taken) return std::nullopt;
    entry& e = at->second;
    e.whole_taken = e.cut.complete();
    if (!std::exchange(e.waits, false) && !e.whole_taken) return std::nullopt;
    return e.cut;
  }

 private:
  struct entry {
    cut_link cut{};
    bool waits = true;
    bool whole_taken = false;
  };
  std::map<link_ends, entry> all_;
};

}  // namespace weft::engine
