// SPDX-License-Identifier: BSL-1.0
// The worker's part of contexts and optimizers. Its one implementation, with the protocol, is
// engine/services/autograd_service.hpp.
#pragma once

#include <weft/autograd/gradient_map.hpp>
#include <weft/autograd/types.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/service.hpp>
#include <weft/wire/tensor.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace weft {

namespace autograd {

/// A context on one worker, as its handles see it.
struct open_context : ref_counted {
  open_context(context_id which, mode passes) noexcept : id(which), how(passes) {}
  const context_id id;
  const mode how;
};

/// What one backward pass is asked for.
struct backward_request {
  std::vector<at::Tensor> roots;
  std::vector<at::Tensor> gradients;  ///< none, or one per root
  pass_settings settings;
  std::vector<at::Tensor> inputs;  ///< with leaf_gradients::inputs
  bool capture = false;            ///< gradients of inputs are returned, not added
  std::vector<riding_step> then;
  std::optional<duration> limit;
};

/// A step that has its turn among others, and waits for gradients. Destroyed: it does not step.
class prepared_step {
 public:
  virtual ~prepared_step() = default;
  /// At most once. The gradients that the context has then, or why they are lost. Any thread; it
  /// computes nothing there.
  virtual void begin(gradient_map gradients, const error& lost) = 0;
};
/// An optimizer whose steps can ride on the end of a pass.
class pass_follower {
 public:
  virtual ~pass_follower() = default;
  /// A pass has succeeded. On the thread that reads the link, before calls that come behind, and
  /// under a context's lock.
  [[nodiscard]] virtual std::unique_ptr<prepared_step> prepare() = 0;
};

}  // namespace autograd

/// The worker's part of contexts. `engine::autograd_service` implements it.
class autograd_service : public service {
 public:
  static constexpr service_id place = service_id::autograd;
  using context_ptr = intrusive_ptr<autograd::open_context>;
  /// It also handles tensors that arrive without a context.
  autograd_service() noexcept : service(place, {section_kind::tensors, section_kind::autograd}) {}

  // ── for autograd::context; awaitables on the worker's thread ──
  [[nodiscard]] virtual context_ptr open(autograd::mode how) = 0;
  /// Tells every worker that joined, and forgets the context here. Only its creator calls it.
  virtual void release(const context_ptr& state) = 0;
  /// Returns what is captured: one gradient per input, or nothing.
  [[nodiscard]] virtual asio::awaitable<std::vector<at::Tensor>>
  backward(context_ptr state, autograd::backward_request what) = 0;
  /// The gradients of this worker's leaves. Waits until the outcome of every pass that ran here is
  /// known. So if the caller was told that a `backward` has returned, they contain that pass.
  /// Throws autograd_context_gone; timed_out at the scope's deadline or after the call deadline;
  /// cancelled; the error that ended the run.
  [[nodiscard]] virtual asio::awaitable<autograd::gradient_map> gradients(context_ptr state) = 0;
  /// After the release: autograd_context_gone, with the reason. Before: success. Any thread.
  [[nodiscard]] virtual error ended(const context_ptr& state) const = 0;
  /// The gradients, without waiting; nothing if the outcome of a pass is not known yet. Any thread.
  /// Throws autograd_context_gone, or the reason why the context is no longer valid.
  [[nodiscard]] virtual std::optional<autograd::gradient_map>
  gradients_now(const context_ptr& state) const = 0;
  /// The context of the running coroutine or function, if any. It may have been released meanwhile.
  [[nodiscard]] static context_ptr current() {
    const auto here = this_scope();
    if (!here || !here->autograd) return nullptr;
    return context_ptr(const_cast<autograd::open_context*>(
        static_cast<const autograd::open_context*>(here->autograd.get())));
  }
  /// Returns the number by which `riding_step` names it, as long as it lives. Any thread.
  [[nodiscard]] virtual std::uint64_t follow(std::weak_ptr<autograd::pass_follower> who) = 0;
  /// For tests: contexts known here, and their passes in flight.
  [[nodiscard]] virtual std::size_t contexts() const = 0;
  [[nodiscard]] virtual std::size_t passes() const = 0;
  /// Frames sent: control messages, gradients, releases.
  [[nodiscard]] virtual std::uint64_t frames() const noexcept = 0;

  /// Peers can make this worker keep at most so many.
  static constexpr std::size_t most_contexts = 65536;  // brought by one peer
  static constexpr std::size_t most_passes = 1024;     // in flight, in one context
};

}  // namespace weft
