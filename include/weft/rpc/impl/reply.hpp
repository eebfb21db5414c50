// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/reply.hpp.
#pragma once

#include <weft/rpc/reply.hpp>

#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/dispatch.hpp>
#include <asio/post.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace weft {

namespace detail {

template <class Handler>
class reply_handler final : public reply_waiter {
 public:
  enum class place : std::uint8_t { of_the_line, own };
  reply_handler(Handler h, place p) : handler_(std::move(h)), place_(p) {}

  void complete(call_result result, resume when) override {
    Handler h = std::move(handler_);
    destroy();
    auto executor = asio::get_associated_executor(h);
    auto run = [h = std::move(h), r = std::move(result)]() mutable { std::move(h)(std::move(r)); };
    if (when == resume::now) {
      asio::dispatch(executor, std::move(run));
    } else {
      asio::post(executor, std::move(run));
    }
  }
  void destroy() noexcept override {
    if (place_ == place::of_the_line) {
      this->~reply_handler();
    } else {
      delete this;
    }
  }

 private:
  Handler handler_;
  place place_;
};

}  // namespace detail

template <class Handler>
void wait_for_reply(reply_line& line, const sent_request& which, Handler handler) {
  using waiter = detail::reply_handler<Handler>;
  auto cancellation = asio::get_associated_cancellation_slot(handler);
  if constexpr (sizeof(waiter) <= reply_line::place_size &&
                alignof(waiter) <= alignof(std::max_align_t)) {
    line.enter(which,
               new (line.place(which.call)) waiter(std::move(handler), waiter::place::of_the_line));
  } else {
    line.enter(which, new waiter(std::move(handler), waiter::place::own));
  }
  if (!cancellation.is_connected()) return;
  try {
    cancellation.assign([&line, call = which.call](asio::cancellation_type) { line.cancel(call); });
  } catch (const std::bad_alloc&) {
    // It cannot be cancelled then; its deadline stays.
  }
}

template <class CompletionToken>
auto async_wait_for_reply(reply_line& line, const sent_request& which, CompletionToken&& token) {
  return asio::async_initiate<CompletionToken, void(call_result)>(
      [](auto handler, reply_line* l, sent_request w) {
        wait_for_reply(*l, w, std::move(handler));
      },
      token, &line, which);
}

}  // namespace weft
