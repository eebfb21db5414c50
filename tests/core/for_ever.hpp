// SPDX-License-Identifier: BSL-1.0
// A wait that only a cancellation ends.
#pragma once

#include <weft/core/event.hpp>

#include <asio/awaitable.hpp>

namespace weft::testing {

inline asio::awaitable<void> for_ever() { co_await event::wait(make_intrusive<event>()); }

}  // namespace weft::testing
