// SPDX-License-Identifier: BSL-1.0
// The waits of transports without a descriptor, abandoned.
#include <weft/transport/detail/pipe_waiter.hpp>
#include <weft/transport/inproc.hpp>

#include <doctest/doctest.h>

#include <core/abandoned.hpp>
#include <string>
#include <utility>

namespace abandoned_transport {

using namespace weft::testing;

/// A place where one waits until it is woken.
struct for_pipe : local_wait {
  static constexpr bool again = true;
  static constexpr bool from_any_thread = true;
  asio::awaitable<void> wait() { return place->wait(); }
  void complete() { place->wake(); }
  weft::intrusive_ptr<weft::detail::pipe_waiter> place =
      weft::make_intrusive<weft::detail::pipe_waiter>(context());
};

/// Accepting: what is waited for is somebody who connects.
struct for_connection : local_wait {
  static constexpr bool again = true;
  asio::awaitable<void> wait() { static_cast<void>(co_await server.accept(context())); }
  void complete() {
    asio::co_spawn(context(), connect(client, context(), endpoint), [](std::exception_ptr) {});
  }
  static asio::awaitable<void> connect(weft::inproc& from, asio::io_context& io, std::string to) {
    static_cast<void>(co_await from.connect(io, std::move(to)));
  }
  std::shared_ptr<weft::inproc::hub> hub = std::make_shared<weft::inproc::hub>();
  weft::inproc client{hub};
  weft::inproc server{hub};
  std::string endpoint = server.listen(context());
};

TEST_CASE_TEMPLATE("abandoned waits: of transports without a descriptor", W, for_pipe,
                   for_connection) {
  abandon_in_every_way<W>();
}

TEST_CASE_TEMPLATE("abandoned waits: woken by another thread in the same moment", W, for_pipe) {
  abandon_while_another_thread_completes<W>();
}

}  // namespace abandoned_transport
