// SPDX-License-Identifier: BSL-1.0
// What CMake's weft_precompile(<target>) gives a target.
#pragma once

#include <weft/weft.hpp>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <ATen/ATen.h>
