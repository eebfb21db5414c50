// SPDX-License-Identifier: BSL-1.0
// What a program's file that has `main` knows of the one that works.
#pragma once

#include <weft/weft.hpp>

asio::awaitable<void> job(weft::worker& me);
