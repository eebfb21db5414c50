// SPDX-License-Identifier: BSL-1.0
// Peer "raw": Asio coroutines at both ends of a socket, without framing, codec or dispatch.
#pragma once

#include "../process.hpp"

#include <cstddef>

namespace bench::raw {

enum class medium { tcp, unix_socket };

/// Sends `bytes` and waits until all of them came back, again and again: p50, p99 in microseconds.
/// The echo runs in a process of its own and answers when it has the whole message. TCP_NODELAY;
/// each read asks the kernel for all that is left.
figures echo(medium over, std::size_t bytes, placement where);

/// The same of 64 bytes over TCP, while `bytes` go the same way again and again over another
/// connection between the same two threads.
figures echo_beside(std::size_t bytes, placement where);

}  // namespace bench::raw
