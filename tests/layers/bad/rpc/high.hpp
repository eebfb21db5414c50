// SPDX-License-Identifier: BSL-1.0
// Asks the machine.
#pragma once

#include <weft/core/low.hpp>
// A comment may name steady_clock and std::random_device.
auto now = std::chrono::steady_clock::now();
std::random_device seed;
asio::steady_timer timer;
std::map<node*, int> order;
#include <torch/torch.h>
