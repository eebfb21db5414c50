// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/reply.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/rpc/reply.hpp>

#include <asio/associated_cancellation_slot.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_type.hpp>

#include <utility>

namespace weft {

template <class Handler>
void wait_for_reply(reply_line& line, const sent_request& which, Handler handler) {
  auto cancellation = asio::get_associated_cancellation_slot(handler);
  line.place(which.call).put(std::move(handler));
  line.enter(which);
  if (!cancellation.is_connected()) return;
  detail::or_die([&] {
    cancellation.assign([&line, call = which.call](asio::cancellation_type) { line.cancel(call); });
  });
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
