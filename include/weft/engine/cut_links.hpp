// SPDX-License-Identifier: BSL-1.0
// Links between two workers, neither of them rank 0, that broke while both live: what their two
// ends told rank 0, and how many posts that makes that never ran. Pure: no sockets, no clock.
#pragma once

#include <weft/engine/drain.hpp>
#include <weft/engine/fwd.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
    /// How many did not run, for all that is known.
    [[nodiscard]] std::uint64_t lost() const noexcept {
      const std::uint64_t all = sent.value_or(0);
      return all - std::min(all, ran.value_or(0));
    }
  };
  link_ends between{};
  std::string why{};  ///< of the end that was heard first
  way up{};           ///< from the lower rank to the higher
  way down{};
};

/// Rank 0's record of them.
class cut_links {
 public:
  /// What the end `from` says. Whether it is the first of the two to be heard; if one of them is
  /// `gone`, only the second is taken.
  bool add(std::uint32_t from, const peer_counts& counts, const std::string& why, bool gone) {
    const link_ends between = link_ends::of(from, counts.peer);
    const auto at = open_.find(between);
    if (at == open_.end() && (gone || decided_.contains(between))) return false;
    cut_link& cut = at == open_.end() ? open_[between] : at->second;
    if (at == open_.end()) {
      cut.between = between;
      cut.why = why;
    }
    const bool lower = from == between.low;
    (lower ? cut.up : cut.down).sent = counts.sent;
    (lower ? cut.down : cut.up).ran = counts.finished;
    if (!counts.down) {  // it was never there: nothing came, and the other end knows nothing
      (lower ? cut.up : cut.down).ran = 0;
      (lower ? cut.down : cut.up).sent = 0;
    }
    return at == open_.end();
  }
  [[nodiscard]] bool waits(link_ends between) const { return open_.contains(between); }
  [[nodiscard]] bool involve(std::uint32_t who) const {
    return std::any_of(open_.begin(), open_.end(), [who](const auto& entry) {
      return entry.first.low == who || entry.first.high == who;
    });
  }
  /// Both ends have said what they know.
  [[nodiscard]] bool complete(link_ends between) const {
    const auto at = open_.find(between);
    return at != open_.end() && at->second.up.sent && at->second.down.sent;
  }
  /// Any for which the other end has not been heard yet.
  [[nodiscard]] std::optional<link_ends> open() const {
    if (open_.empty()) return std::nullopt;
    return open_.begin()->first;
  }
  /// What is known of it, once.
  [[nodiscard]] std::optional<cut_link> take(link_ends between) {
    const auto at = open_.find(between);
    if (at == open_.end()) return std::nullopt;
    cut_link out = std::move(at->second);
    open_.erase(at);
    decided_.insert(between);
    return out;
  }

 private:
  std::map<link_ends, cut_link> open_;
  std::set<link_ends> decided_;
};

}  // namespace weft::engine
