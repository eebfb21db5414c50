// SPDX-License-Identifier: BSL-1.0
// What requests wait for: values of this worker that are not made yet.
#pragma once

#include <weft/engine/services/impl/rref_core.hpp>
#include <weft/rpc/call_target.hpp>
#include <weft/rref/section.hpp>

#include <cstdint>
#include <utility>

namespace weft::engine {

/// A value of this worker, as a request waits for it. The request holds a local reference, so that
/// it is not released meanwhile.
class unmade_value final : public unmade_object {
 public:
  unmade_value(intrusive_ptr<rref_core> core, const rref_id& id)
      : core_(std::move(core)), id_(id) {}

  bool enter(const intrusive_ptr<object_waiter>& who) override {
    const std::lock_guard lock(core_->mutex);
    const rref_id end = core_->end_of(id_, rref_core::asks::first);
    if (end != id_ && !core_->values.contains(end)) return false;
    auto& v = core_->values[end];
    if (v.open()) return false;
    v.waiting.emplace(place(*who) = ++core_->places, who);
    return true;
  }
  void leave(const object_waiter& who) noexcept override {
    intrusive_ptr<object_waiter> left;  // dies without the lock
    const std::lock_guard lock(core_->mutex);
    rref_id id = id_;
    for (std::uint8_t steps = 0; steps <= rref_protocol::most_forwards; ++steps) {
      const auto at = core_->values.find(id);
      if (at == core_->values.end()) return;
      if (const auto there = at->second.waiting.find(place(who));
          there != at->second.waiting.end()) {
        left = std::move(there->second);
        at->second.waiting.erase(there);
        return;
      }
      const auto* on = core_->local_lead(id);
      if (!on) return;
      id = on->to->id();
    }
  }
  void look(call_target& out) override;

 private:
  const intrusive_ptr<rref_core> core_;
  const rref_id id_;
};

/// What there is of the value, or how to wait for it.
inline void look(const intrusive_ptr<rref_core>& core, const rref_id& id, call_target& target,
                 rref_core::asks which) {
  const rref_id end = core->look(id, target, which);
  if (!target.object && !target.failure) target.unmade = make_intrusive<unmade_value>(core, end);
}
inline void unmade_value::look(call_target& out) {
  engine::look(core_, id_, out, rref_core::asks::at_once);
}

}  // namespace weft::engine
