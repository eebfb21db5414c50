// SPDX-License-Identifier: BSL-1.0
// Memory for one completion handler, of whatever type, that waits: waiting allocates nothing.
#pragma once

#include <weft/core/call_scope.hpp>

#include <asio/associated_executor.hpp>
#include <asio/dispatch.hpp>
#include <asio/io_context.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace weft::detail {

/// Holds at most one handler, of signature void(). One thread at a time.
class handler_place {
 public:
  handler_place() = default;
  handler_place(const handler_place&) = delete;
  handler_place& operator=(const handler_place&) = delete;
  ~handler_place() { drop(); }

  [[nodiscard]] explicit operator bool() const noexcept { return held_ != nullptr; }

  /// Requires that it holds none.
  template <class Handler>
  void put(Handler handler) {
    using kept = held_as<Handler>;
    static_assert(sizeof(kept) <= size && alignof(kept) <= alignof(std::max_align_t));
    held_ = new (memory_) kept(std::move(handler));
  }
  /// Calls the handler on its executor, at once if that is of `here`, whose thread this is. The
  /// place is free again before: the handler may wait in it anew, or destroy it.
  void resume(asio::io_context& here) { std::exchange(held_, nullptr)->resume(here); }
  /// Destroys the handler, if there is one, without calling it. May destroy the place with it.
  void drop() noexcept {
    if (held* const was = std::exchange(held_, nullptr)) was->drop();
  }

 private:
  static constexpr std::size_t size = 128;  // of a coroutine that awaits

  struct held {
    /// Each destroys this.
    virtual void resume(asio::io_context& here) = 0;
    virtual void drop() noexcept = 0;

   protected:
    ~held() = default;
  };
  template <class Handler>
  struct held_as final : held {
    explicit held_as(Handler h) : handler(std::move(h)) {}
    void resume(asio::io_context& here) override {
      Handler mine = std::move(handler);
      this->~held_as();
      const auto executor = asio::get_associated_executor(mine);
      if (io_context_of(executor) == &here) {
        run_inside(executor, [&] { std::move(mine)(); });
      } else {
        asio::dispatch(std::move(mine));
      }
    }
    void drop() noexcept override {
      // Its destruction may end whatever the place is a part of.
      const Handler mine = std::move(handler);
      this->~held_as();
    }
    Handler handler;
  };

  held* held_ = nullptr;
  alignas(std::max_align_t) std::byte memory_[size];
};

}  // namespace weft::detail
