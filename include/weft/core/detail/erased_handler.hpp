// SPDX-License-Identifier: BSL-1.0
// A completion handler of whatever type that waits, in memory that is there already: what every
// wait of the library's own is made of (events, replies, pipes, coroutines that serve requests).
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/core/detail/out_of_memory.hpp>

#include <asio/append.hpp>
#include <asio/associated_executor.hpp>
#include <asio/dispatch.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace weft::detail {

/// Holds at most one. A handler that, with 16 bytes beside it, takes no more than `Size` waits
/// inside of this object. One thread at a time.
///
///   erased_handler<void(asio::error_code)> waits;
///   waits.put(std::move(handler));
///   waits.resume(io, asio::error_code());  // or `post`, or `drop`: each takes it out, once
template <class Signature, std::size_t Size = 128>
class erased_handler;

template <class... Args, std::size_t Size>
class erased_handler<void(Args...), Size> {
 public:
  erased_handler() = default;
  erased_handler(const erased_handler&) = delete;
  erased_handler& operator=(const erased_handler&) = delete;
  ~erased_handler() { drop(); }

  [[nodiscard]] explicit operator bool() const noexcept { return held_ != nullptr; }

  /// Whether such a handler waits without an allocation.
  template <class Handler>
  static constexpr bool has_room_for =
      sizeof(void*) + sizeof(Handler) <= Size && alignof(Handler) <= alignof(std::max_align_t);

  /// Requires that it holds none.
  /// Semantic duty: moving a handler does not throw.
  template <class Handler>
  void put(Handler handler) {
    using kept = held_as<Handler>;
    void* place = memory_;
    if constexpr (!has_room_for<Handler>) {
      place = or_die([] { return std::allocator<kept>().allocate(1); });
    }
    held_ = new (place) kept(std::move(handler));
  }
  /// Calls the handler on its executor, at once if that is of `here`, whose thread this is. The
  /// place is free again before: the handler may wait in it anew, or destroy it.
  void resume(asio::io_context& here, Args... args) {
    std::exchange(held_, nullptr)->resume(here, std::move(args)...);
  }
  /// Calls the handler on its executor, later. Any thread.
  void post(Args... args) { std::exchange(held_, nullptr)->post(std::move(args)...); }
  /// Destroys the handler, if there is one, without calling it. May destroy the place with it.
  void drop() noexcept {
    if (held* const was = std::exchange(held_, nullptr)) was->drop();
  }

 private:
  struct held {
    /// Each destroys this.
    virtual void resume(asio::io_context& here, Args... args) = 0;
    virtual void post(Args... args) = 0;
    virtual void drop() noexcept = 0;

   protected:
    ~held() = default;
  };
  template <class Handler>
  struct held_as final : held {
    explicit held_as(Handler h) : handler(std::move(h)) {}
    void resume(asio::io_context& here, Args... args) override {
      Handler mine = take();
      const auto executor = asio::get_associated_executor(mine);
      if (io_context_of(executor) == &here) {
        run_inside(executor, [&] { std::move(mine)(std::move(args)...); });
      } else {
        asio::dispatch(asio::append(std::move(mine), std::move(args)...));
      }
    }
    void post(Args... args) override {
      or_die([&] { asio::post(asio::append(take(), std::move(args)...)); });
    }
    void drop() noexcept override {
      // Its destruction may end whatever the place is a part of.
      [[maybe_unused]] const Handler mine = take();
    }
    [[nodiscard]] Handler take() {
      Handler mine = std::move(handler);
      this->~held_as();
      if constexpr (!has_room_for<Handler>) std::allocator<held_as>().deallocate(this, 1);
      return mine;
    }
    Handler handler;
  };

  held* held_ = nullptr;
  alignas(std::max_align_t) std::byte memory_[Size];
};

}  // namespace weft::detail
