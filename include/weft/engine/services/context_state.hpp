// SPDX-License-Identifier: BSL-1.0
// An autograd context on one worker: what it has recorded, its passes, its gradients.
#pragma once

#include <weft/autograd/ended_passes.hpp>
#include <weft/autograd/gradient_map.hpp>
#include <weft/autograd/nodes.hpp>
#include <weft/autograd/pass.hpp>
#include <weft/autograd/service.hpp>
#include <weft/autograd/types.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/wire/message_extensions.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace weft::engine {

using autograd::context_id;
using autograd::ended_passes;
using autograd::gradient_map;
using autograd::local_pass;
using autograd::message_id;
using autograd::open_context;
using autograd::pass_id;
using autograd::send_table;
using autograd::worker_rank;

/// `why` is the rest of a sentence.
[[nodiscard]] inline error context_gone(const std::string& why) {
  return error(errc::autograd_context_gone, "the autograd context " + why,
               call_progress::not_executed);
}

/// Who waits for a pass that began here.
struct pass_waiter : ref_counted {
  intrusive_ptr<event> over = make_intrusive<event>();
  // These under the context's lock, before `over` is set.
  std::optional<autograd::wave_output::aborted> failure;
  error run_ended;
  std::vector<at::Tensor> captured;
  std::map<worker_rank, std::string> waits;  ///< what others said that they wait for
};

/// One context on one worker.
struct context_state final : open_context {
  context_state(context_id which, autograd::mode kind, worker_rank made_by, worker_rank from)
      : open_context(which, kind), creator(made_by), brought_by(from) {}
  const worker_rank creator;
  const worker_rank brought_by;  ///< whose call came first; the creator itself where it was made

  mutable std::mutex mutex;  // guards the rest
  bool released = false;
  /// autograd_context_gone and why, once it is released; or is about to be, behind steps.
  error release_reason;
  /// Why a pass that succeeded, or may have, is not added, or that its creator is lost.
  error invalid_reason;
  error run_ended;  ///< why nobody waits here any more, once the run has failed
  message_id last_message = 0;
  std::uint32_t last_pass = 0;
  send_table sends;
  std::set<worker_rank> joined;  ///< other workers that may have this context
  bool unreported = false;       ///< `joined` grew since the last reply
  ended_passes ended;            ///< of others' passes
  std::map<pass_id, std::shared_ptr<local_pass>> passes;
  /// By initiator and number, of its last passes over retained graphs that have succeeded.
  std::map<worker_rank, std::map<std::uint32_t, std::shared_ptr<const autograd::kept_plan>>> plans;
  std::map<pass_id, intrusive_ptr<pass_waiter>> waiters;
  gradient_map gradients;
  /// Steps that wait until the outcome of all passes that have run here is known; and a release
  /// that waits for them, as the rest of a sentence.
  std::vector<std::unique_ptr<autograd::prepared_step>> waiting_steps;
  std::string waiting_release;
  intrusive_ptr<event> pass_over;  ///< set when the next pass is over; made by who waits for that

  /// A pass has run here and its initiator may already say that it succeeded. Under the lock.
  [[nodiscard]] bool outcome_pending() const {
    for (const auto& [which, pass] : passes) {
      const autograd::wave& plan = pass->plan();
      if (plan.phase() == autograd::wave_phase::settled && !plan.is_initiator()) return true;
    }
    return false;
  }
  /// Throws if there are no gradients to be had. Under the lock.
  void check() const {
    if (release_reason) throw rpc_error(release_reason);
    if (invalid_reason) throw rpc_error(invalid_reason);
  }
  /// The gradients as they are; `weft::autograd_service::gradients` waits for what is on its way.
  [[nodiscard]] gradient_map snapshot() const {
    const std::lock_guard lock(mutex);
    return gradients;
  }
};

/// In the record of a message: what `dropped` takes back.
struct recorded_send final : message_extension {
  intrusive_ptr<context_state> context;
  message_id message = 0;    ///< 0: no tensor with grad
  bool told_joined = false;  ///< the section says who joined
};

/// Values of `what` beside the control messages.
inline constexpr std::uint8_t release_frame = 16;
inline constexpr std::uint8_t joined_frame = 17;
inline constexpr std::uint8_t steps_frame = 18;

/// The engine's part of what a handle points to.
[[nodiscard]] inline intrusive_ptr<context_state>
state_of(const weft::autograd_service::context_ptr& c) noexcept {
  return intrusive_ptr<context_state>(static_cast<context_state*>(c.get()));
}

}  // namespace weft::engine
