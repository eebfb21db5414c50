// SPDX-License-Identifier: BSL-1.0
// Waits for what is there already. Each goes on behind the handler that runs, not inside it: the
// coroutine has left its stack by then, as Asio asks for. But a trip around the loop for each would
// cost a look for new events, and that more than a call.
//
//   handler of a waiter ─► [ w1 | w2 | ... ] ─► at most `most` of them, the rest are posted
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/waiter_registry.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/io_context.hpp>

#include <utility>

namespace weft::detail {

/// Lives in the handler that it follows.
class ready_line {
 public:
  /// Who stands in a line is held by it.
  class item : public registered_waiter {
   public:
    virtual void go_on() = 0;
    virtual void go_on_later() noexcept = 0;

   private:
    friend class ready_line;
    intrusive_ptr<item> behind_;
  };

  explicit ready_line(const asio::io_context& io) noexcept
      : io_(&io), outer_(std::exchange(innermost, this)) {}
  ready_line(const ready_line&) = delete;
  ready_line& operator=(const ready_line&) = delete;
  ~ready_line() {
    innermost = outer_;
    while (const intrusive_ptr<item> next = pop()) next->go_on_later();
  }

  /// True: it goes on behind the handler that runs here for `io`.
  [[nodiscard]] static bool join(const asio::io_context& io,
                                 const intrusive_ptr<item>& who) noexcept {
    if (!innermost || innermost->io_ != &io) return false;
    intrusive_ptr<item>& end = innermost->last_ ? innermost->last_->behind_ : innermost->first_;
    end = who;
    innermost->last_ = who.get();
    return true;
  }
  /// When the handler has returned.
  void resume_all() {
    constexpr int most = 64;
    for (int left = most; left > 0; --left) {
      const intrusive_ptr<item> next = pop();
      if (!next) return;
      next->go_on();
    }
  }

 private:
  intrusive_ptr<item> pop() noexcept {
    intrusive_ptr<item> out = std::move(first_);
    if (out) first_ = std::move(out->behind_);
    if (!first_) last_ = nullptr;
    return out;
  }

  WEFT_PROCESS_WIDE static thread_local ready_line* innermost;

  const asio::io_context* const io_;
  ready_line* const outer_;
  intrusive_ptr<item> first_;
  item* last_ = nullptr;
};
inline thread_local ready_line* ready_line::innermost = nullptr;

}  // namespace weft::detail
