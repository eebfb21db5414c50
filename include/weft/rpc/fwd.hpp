// SPDX-License-Identifier: BSL-1.0
// Names of the classes that users' signatures mention, and of Asio's that weft mentions.
#pragma once

namespace weft {

class worker;
class peer;
class caller;
class link;
class service;

template <class T>
class rref;

template <class T>
struct immediate;

namespace engine {
class helper;
}

}  // namespace weft

namespace asio {

class any_io_executor;
class io_context;

// The default argument stands in Asio's own declaration, before or after this one.
template <class T, class Executor>
class awaitable;

}  // namespace asio
