// SPDX-License-Identifier: BSL-1.0
// A lock for coroutines, which get it in the order in which they asked.
#pragma once

#include <weft/core/event.hpp>

#include <asio/awaitable.hpp>

#include <list>
#include <mutex>

namespace weft::detail {

/// In the order in which they came. Thread safe; outlives its places.
class fifo_lock {
 public:
  /// In line, until it is destroyed: then it is the next one's turn.
  class place {
   public:
    explicit place(fifo_lock& of) : of_(of), mine_(make_intrusive<event>()) {
      const std::lock_guard lock(of_.mutex_);
      at_ = of_.line_.insert(of_.line_.end(), mine_);
      if (at_ == of_.line_.begin()) mine_->set();
    }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() {
      intrusive_ptr<event> next;
      {
        const std::lock_guard lock(of_.mutex_);
        of_.line_.erase(at_);
        if (!of_.line_.empty()) next = of_.line_.front();
      }
      if (next) next->set();
    }
    /// Until it is this one's turn. Cancelling ends the wait.
    [[nodiscard]] asio::awaitable<void> comes() const { return event::wait(mine_); }

   private:
    fifo_lock& of_;
    const intrusive_ptr<event> mine_;
    std::list<intrusive_ptr<event>>::iterator at_;
  };

 private:
  std::mutex mutex_;
  std::list<intrusive_ptr<event>> line_;
};

}  // namespace weft::detail
