// SPDX-License-Identifier: BSL-1.0
// A coroutine lets others run.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/event.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <utility>

namespace weft::detail {

/// Behind all that is ready there now.
inline asio::awaitable<void> next_turn(asio::io_context& there) {
  const intrusive_ptr<event> turn = make_intrusive<event>();
  asio::awaitable<void> comes = event::wait(turn);
  post_or_die(there, [turn] { turn->set(); });
  co_await std::move(comes);
}

}  // namespace weft::detail
