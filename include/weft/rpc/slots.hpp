// SPDX-License-Identifier: BSL-1.0
// Callers that wait for replies. A call id is (index, generation); generations count per link, so
// that a damaged or late id never finds another call's slot. Used on the worker's thread only.
#pragma once

#include <weft/core/detail/bare_error.hpp>
#include <weft/core/detail/insist.hpp>
#include <weft/core/error.hpp>
#include <weft/core/time.hpp>
#include <weft/wire/message.hpp>

#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/dispatch.hpp>
#include <asio/post.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

/// A reply on its way to its caller; recycled, so that waiting coroutines stay small.
struct held_reply final : ref_counted, incoming_message {
  explicit held_reply(incoming_message&& m) noexcept : incoming_message(std::move(m)) {}
  static void* operator new(std::size_t size) { return detail::recycled_new(size); }
  static void operator delete(void* block, std::size_t size) noexcept {
    detail::recycled_delete(block, size);
  }
};

/// What a caller's coroutine resumes with: a reply, or why there is none.
struct call_result {
  ref<held_reply> reply;
  error failure;
};

class reply_slots {
 public:
  /// Called when a call gives up (deadline or cancellation), with the number of its frame: tells
  /// the peer, and says how far the call got.
  using gave_up = std::function<execution(std::uint64_t call, std::uint64_t frame)>;
  static constexpr std::uint64_t no_frame = ~std::uint64_t{0};

  reply_slots(timer_list& deadlines, gave_up on_give_up)
      : deadlines_(deadlines), gave_up_(std::move(on_give_up)) {}
  reply_slots(const reply_slots&) = delete;
  reply_slots& operator=(const reply_slots&) = delete;
  ~reply_slots() { drop_all(); }

  /// A slot for a request that is about to be sent; returns the call id. `async_wait` or `close`
  /// must follow before the worker's thread does anything else.
  [[nodiscard]] std::uint64_t open(time_point deadline) {
    slot& s = take();
    try {
      deadlines_.add(s, deadline);
    } catch (...) {
      free_.push_back(s.index);
      throw;
    }
    return s.id();
  }
  /// The request was not sent.
  void close(std::uint64_t call) noexcept {
    slot& s = slots_[static_cast<std::uint32_t>(call)];
    deadlines_.remove(s);
    free_.push_back(s.index);
  }
  /// Waits for the answer to the request that was queued as frame number `frame`, until the
  /// deadline or its cancellation. Signature void(call_result). Does not throw.
  template <class CompletionToken>
  auto async_wait(std::uint64_t call, std::uint64_t frame, CompletionToken&& token) {
    return asio::async_initiate<CompletionToken, void(call_result)>(
        [](auto handler, reply_slots* self, std::uint64_t c, std::uint64_t f) {
          self->wait(c, f, std::move(handler));
        },
        token, this, call, frame);
  }
  /// `open` and a wait in one, for a handler of signature void(call_result).
  template <class Handler>
  std::uint64_t add(Handler handler, time_point deadline) {
    const std::uint64_t call = open(deadline);
    wait(call, no_frame, std::move(handler));
    return call;
  }

  /// False: nobody waits for that call (any more).
  bool complete(std::uint64_t call, call_result result) {
    slot* s = find(call);
    if (!s) return false;
    finish(*s, std::move(result), resume::now);
    return true;
  }
  [[nodiscard]] bool waits(std::uint64_t call) { return find(call) != nullptr; }
  /// Ends every call with `why(frame number)`. Who cannot be told for want of memory is destroyed,
  /// and keeps nobody else from being told; all of them together wait for memory once.
  template <class Why>
    requires std::is_invocable_r_v<error, Why, std::uint64_t>
  void fail_all(Why&& why) {
    detail::patience left;
    for (std::size_t i = 0; i < slots_.size(); ++i) {  // a handler's end may add a slot
      if (!slots_[i].waiting) continue;
      detail::await_memory(left);
      try {
        finish(slots_[i], {nullptr, why(slots_[i].frame)}, resume::later);
      } catch (const std::bad_alloc&) {
      }
    }
  }
  void fail_all(const error& reason) {
    fail_all([&reason](std::uint64_t) { return reason; });
  }
  /// Destroys those who wait, without running them.
  void drop_all() noexcept {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slot& s = slots_[i];
      if (!s.waiting) continue;
      deadlines_.remove(s);
      --waiting_;
      s.drop();
      free_.push_back(s.index);
    }
  }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }

 private:
  /// `now`: within `complete`, if already on the handler's executor.
  enum class resume : std::uint8_t { now, later };

  struct pending {
    virtual ~pending() = default;
    /// Moves the handler out, destroys this, then runs the handler on its executor.
    virtual void complete(call_result result, resume when) = 0;
    virtual void destroy() noexcept = 0;
  };

  struct slot final : timed {
    static constexpr std::size_t room = 128;
    slot(reply_slots& o, std::uint32_t i) : owner(o), index(i) {}

    [[nodiscard]] std::uint64_t id() const noexcept {
      return std::uint64_t{generation} << 32 | index;
    }
    template <class Handler>
    void put(Handler handler) {
      using held = holder<Handler>;
      if constexpr (sizeof(held) <= room && alignof(held) <= alignof(std::max_align_t)) {
        waiting = new (storage) held(std::move(handler), held::inside);
      } else {
        waiting = new held(std::move(handler), held::outside);
      }
    }
    void drop() noexcept { std::exchange(waiting, nullptr)->destroy(); }
    void expired() override { owner.give_up(id(), errc::timed_out, "no reply by the deadline"); }

    reply_slots& owner;
    std::uint32_t index;
    std::uint64_t frame = no_frame;
    std::uint32_t generation = 0;
    pending* waiting = nullptr;
    alignas(std::max_align_t) std::byte storage[room];
  };

  template <class Handler>
  struct holder final : pending {
    enum place { inside, outside };
    holder(Handler h, place p) : handler(std::move(h)), where(p) {}
    void complete(call_result result, resume when) override {
      Handler h = std::move(handler);
      destroy();
      auto executor = asio::get_associated_executor(h);
      auto run = [h = std::move(h), r = std::move(result)]() mutable {
        std::move(h)(std::move(r));
      };
      if (when == resume::now) {
        asio::dispatch(executor, std::move(run));
      } else {
        asio::post(executor, std::move(run));
      }
    }
    void destroy() noexcept override {
      if (where == inside) {
        this->~holder();
      } else {
        delete this;
      }
    }
    Handler handler;
    place where;
  };

  template <class Handler>
  void wait(std::uint64_t call, std::uint64_t frame, Handler handler) {
    slot& s = slots_[static_cast<std::uint32_t>(call)];
    auto cancellation = asio::get_associated_cancellation_slot(handler);
    s.put(std::move(handler));
    s.frame = frame;
    ++waiting_;
    if (!cancellation.is_connected()) return;
    try {
      cancellation.assign([this, call](asio::cancellation_type) {
        give_up(call, errc::cancelled, "the caller gave up");
      });
    } catch (const std::bad_alloc&) {
      // It cannot be cancelled then; its deadline stays.
    }
  }
  slot& take() {
    if (free_.empty()) {
      // So that giving a slot back never allocates.
      if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 16);
      slots_.emplace_back(*this, static_cast<std::uint32_t>(slots_.size()));
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    slot& s = slots_[free_.back()];
    free_.pop_back();
    s.generation = ++generation_;
    return s;
  }
  slot* find(std::uint64_t call) noexcept {
    const auto index = static_cast<std::uint32_t>(call);
    if (index >= slots_.size()) return nullptr;
    slot& s = slots_[index];
    return s.waiting && s.id() == call ? &s : nullptr;
  }
  void finish(slot& s, call_result result, resume when) {
    deadlines_.remove(s);
    pending* waiting = std::exchange(s.waiting, nullptr);
    --waiting_;
    // The slot is free only after the handler left its storage, which `complete` does first; a
    // handler that runs inline may already take another slot.
    struct put_back {
      reply_slots& self;
      std::uint32_t index;
      ~put_back() { self.free_.push_back(index); }
    } later{*this, s.index};
    waiting->complete(std::move(result), when);
  }
  void give_up(std::uint64_t call, errc code, const char* why) {
    slot* s = find(call);
    if (!s) return;
    const execution ran = gave_up_(call, s->frame);
    detail::await_memory();
    finish(*s, {nullptr, detail::sure_error(code, why, ran)}, resume::later);
  }

  timer_list& deadlines_;
  gave_up gave_up_;
  std::deque<slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t waiting_ = 0;
  std::uint32_t generation_ = 0;
};

}  // namespace weft
