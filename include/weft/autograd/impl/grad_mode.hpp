// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/grad_mode.hpp.
#pragma once

#include <weft/autograd/grad_mode.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>

#include <c10/core/AutogradState.h>

#include <utility>

namespace weft {

namespace detail {
/// Not final: a cast to a final class may compare addresses that each library has of its own.
class fixed_grad_mode : public thread_mode {
 public:
  explicit fixed_grad_mode(grad_mode mode) noexcept : on_(mode == grad_mode::on) {}
  void enter(saved& before) const noexcept override {
    c10::AutogradState& state = c10::AutogradState::get_tls_state();
    before.words[0] = state.get_grad_mode() ? 1 : 0;
    state.set_grad_mode(on_);
  }
  void leave(const saved& before) const noexcept override {
    c10::AutogradState::get_tls_state().set_grad_mode(before.words[0] != 0);
  }
  [[nodiscard]] bool on() const noexcept { return on_; }

 private:
  bool on_;
};

/// Whether the running coroutine has switched recording off. Tells it also where a thread's own
/// guard is in force for the moment, as inside the codec of a tensor.
[[nodiscard]] inline bool recording_is_off() noexcept {
  if (!current_scope || !current_scope->mode) return false;
  const auto* mode = dynamic_cast<const fixed_grad_mode*>(current_scope->mode.get());
  return mode && !mode->on();
}
}  // namespace detail

template <class T>
asio::awaitable<T> with_grad_mode(worker& me, grad_mode mode, asio::awaitable<T> work) {
  const auto outer = this_scope();
  intrusive_ptr<call_scope> inner = outer ? outer->copy() : make_intrusive<call_scope>();
  inner->mode = make_intrusive<detail::fixed_grad_mode>(mode);
  co_return co_await with_scope(weft::detail::context_of(me),
                                intrusive_ptr<const call_scope>(std::move(inner)), std::move(work));
}

}  // namespace weft
