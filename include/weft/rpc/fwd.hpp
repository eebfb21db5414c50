// SPDX-License-Identifier: BSL-1.0
// Names of the classes that users' signatures mention, and of Asio's coroutine type.
#pragma once

namespace weft {

class worker;
class peer;
class caller;
class link;
class handshake;

template <class T>
class rref;

template <class T>
struct light;

}  // namespace weft

namespace asio {

class any_io_executor;

// The default argument stands in Asio's own declaration, before or after this one.
template <class T, class Executor>
class awaitable;

}  // namespace asio
