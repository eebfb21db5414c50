// SPDX-License-Identifier: BSL-1.0
// A coroutine lets others run.
#pragma once

#include <weft/core/event.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>

#include <utility>

namespace weft::detail {

/// Behind all that is ready there now. A post that is awaited would take the coroutine with it
/// where memory lacks; this throws std::bad_alloc into it.
inline asio::awaitable<void> next_turn(asio::io_context& there) {
  const intrusive_ptr<event> turn = make_intrusive<event>();
  asio::awaitable<void> comes = event::wait(turn);
  asio::post(there, [turn] { turn->set(); });
  co_await std::move(comes);
}

}  // namespace weft::detail
