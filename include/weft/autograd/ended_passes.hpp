// SPDX-License-Identifier: BSL-1.0
// Remembers which passes of a context are over, so that a late message never revives one, and says
// what to do with a message whose pass is not (or no longer) known. Pure: standard library only.
#pragma once

#include <weft/autograd/messages.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <variant>

namespace weft::autograd {

/// What to do with a control message of a pass for which this worker holds no `wave`.
enum class admission : std::uint8_t {
  fresh,   ///< a new pass: make its wave and step it; then, if the initiator was lost before, step
           ///< `lost` too, for nobody else will
  stale,   ///< of a pass that is over, or harmless: ignore it, but answer a need
  refuse,  ///< no pass begins by it: answer `abort_message`; see `blame_for`
};

/// Who is to blame for a message of a pass that is not known to `self`, which got it from `from`.
/// Only an initiator knows which of its passes began, and who takes part it hears from others.
inline blame blame_for(const control& message, worker_rank from, worker_rank self) {
  const auto accused_unless = [&](worker_rank initiator) {
    return message.pass.initiator == initiator ? blame::somebody : blame::sender;
  };
  if (std::holds_alternative<ack_message>(message.body)) return blame::sender;  // nothing was asked
  if (std::holds_alternative<done_message>(message.body)) return accused_unless(self);
  if (std::holds_alternative<go_message>(message.body) ||
      std::holds_alternative<end_message>(message.body)) {
    return accused_unless(from);
  }
  return blame::somebody;
}

/// The ended passes of one context, as intervals per initiator. Passes count up, so gaps are passes
/// that are under way or never came here; beyond the limit the oldest gap counts as ended too, and
/// whoever still needs something in such a pass must be told so. Not thread-safe.
class ended_passes {
 public:
  /// `limit` >= 1 bounds the intervals kept for one initiator.
  explicit ended_passes(std::size_t limit = 4096) : limit_(limit) {}

  bool contains(const pass_id& pass) const {
    const auto of = ended_.find(pass.initiator);
    if (of == ended_.end()) return false;
    const auto after = of->second.upper_bound(pass.number);
    return after != of->second.begin() && std::prev(after)->second >= pass.number;
  }

  /// Memory for the end of one pass.
  class place {
   public:
    place() = default;

   private:
    friend class ended_passes;
    std::map<std::uint32_t, std::uint32_t>::node_type node_;
  };
  /// So that `add` of this pass, which begins here, does not throw.
  [[nodiscard]] place prepare(const pass_id& pass) {
    static_cast<void>(ended_[pass.initiator]);
    table one;
    one.emplace(pass.number, pass.number);
    place out;
    out.node_ = one.extract(one.begin());
    return out;
  }
  /// Call when a wave is over and forgotten, or is not to begin.
  void add(const pass_id& pass, place prepared = {}) {
    if (contains(pass)) return;
    table& of = ended_[pass.initiator];
    const std::uint32_t n = pass.number;
    auto after = of.upper_bound(n);
    if (after != of.begin()) {
      const auto before = std::prev(after);
      if (before->second + 1 == n) {
        before->second = n;
        if (after != of.end() && after->first == n + 1) {
          before->second = after->second;
          of.erase(after);
        }
        return;
      }
    }
    if (after != of.end() && n + 1 == after->first) {
      auto wider = of.extract(after);
      wider.key() = n;
      of.insert(std::move(wider));
      return;
    }
    if (prepared.node_) {
      prepared.node_.key() = prepared.node_.mapped() = n;
      of.insert(after, std::move(prepared.node_));
    } else {
      of.emplace_hint(after, n, n);
    }
    if (of.size() > limit_) {
      const auto second = std::next(of.begin());
      of.begin()->second = second->second;
      of.erase(second);
    }
  }

  /// Intervals kept for one initiator.
  std::size_t intervals(worker_rank initiator) const {
    const auto of = ended_.find(initiator);
    return of == ended_.end() ? 0 : of->second.size();
  }

  /// Judges a message of a pass that has no wave here, and remembers a pass that was aborted
  /// before it was heard of. `self` is this worker.
  admission admit(const control& message, worker_rank self) {
    if (contains(message.pass)) return admission::stale;
    // A gradient may overtake the need that announces it.
    if (std::holds_alternative<need_message>(message.body) ||
        std::holds_alternative<grad_message>(message.body)) {
      return message.pass.initiator == self ? admission::refuse : admission::fresh;
    }
    if (std::holds_alternative<abort_message>(message.body)) {
      add(message.pass);
      return admission::stale;
    }
    return admission::refuse;
  }

 private:
  using table = std::map<std::uint32_t, std::uint32_t>;  // first -> last

  std::size_t limit_;
  std::map<worker_rank, table> ended_;
};

}  // namespace weft::autograd
