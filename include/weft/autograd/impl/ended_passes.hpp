// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/ended_passes.hpp. Pure: standard library only.
#pragma once

#include <weft/autograd/ended_passes.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <variant>

namespace weft::autograd {

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

inline bool ended_passes::contains(const pass_id& pass) const {
  const auto of = ended_.find(pass.initiator);
  if (of == ended_.end()) return false;
  const auto after = of->second.upper_bound(pass.number);
  return after != of->second.begin() && std::prev(after)->second >= pass.number;
}

inline void ended_passes::add(const pass_id& pass) {
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
  of.emplace_hint(after, n, n);
  if (of.size() > limit_) {
    const auto second = std::next(of.begin());
    of.begin()->second = second->second;
    of.erase(second);
  }
}

inline std::size_t ended_passes::intervals(worker_rank initiator) const {
  const auto of = ended_.find(initiator);
  return of == ended_.end() ? 0 : of->second.size();
}

inline admission ended_passes::admit(const control& message, worker_rank self) {
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

}  // namespace weft::autograd
