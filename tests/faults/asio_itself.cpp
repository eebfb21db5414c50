// SPDX-License-Identifier: BSL-1.0
// Asio's own memory, which weft's shortages do not reach: each lack of it alone is told to whoever
// waits, or leaves `run`. What this shows of Asio stands in weft/core/detail/insist.hpp.
#include <asio.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <exception>

namespace asio_itself {

using namespace std::chrono_literals;
using socket = asio::local::stream_protocol::socket;

thread_local long until_one_fails = 0;  // 0: none does

}  // namespace asio_itself

extern "C" {
void* __real_aligned_alloc(std::size_t alignment, std::size_t size);
/// The linker puts it in front of the C library's, where this program's own code calls it.
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
  long& left = asio_itself::until_one_fails;
  if (left > 0 && --left == 0) return nullptr;
  return __real_aligned_alloc(alignment, size);
}
}

namespace asio_itself {
namespace {

asio::awaitable<void> echo(socket peer) {
  char text[8];
  // bounded: by the other side, which closes
  for (;;) {
    const auto size = co_await peer.async_read_some(asio::buffer(text), asio::use_awaitable);
    co_await asio::async_write(peer, asio::buffer(text, size), asio::use_awaitable);
  }
}
asio::awaitable<void> round_trip(socket& peer) {
  char text[8] = "hello";
  co_await asio::async_write(peer, asio::buffer(text), asio::use_awaitable);
  co_await asio::async_read(peer, asio::buffer(text), asio::use_awaitable);
}
asio::awaitable<void> ask(asio::io_context& io, socket peer, int rounds) {
  asio::steady_timer pause(io);
  for (int n = 0; n < rounds; ++n) {
    co_await round_trip(peer);
    pause.expires_after(1ms);
    co_await pause.async_wait(asio::use_awaitable);
    co_await asio::post(asio::use_awaitable);
  }
}

/// What came of it: who asked was told, or served.
struct outcome {
  bool struck = false;
  bool told = false;
  bool served = false;
  bool left_the_loop = false;  ///< thrown by `run`
};
outcome with_lack_of(long nth) {
  outcome now;
  asio::io_context io;
  socket a(io), b(io);
  asio::local::connect_pair(a, b);
  until_one_fails = nth;
  try {
    // Whatever ends it closes its socket, so that who asks is told.
    asio::co_spawn(io, echo(std::move(a)), [](const std::exception_ptr&) {});
    asio::co_spawn(io, ask(io, std::move(b), 3),
                   [&now](const std::exception_ptr& why) { (why ? now.told : now.served) = true; });
  } catch (const std::bad_alloc&) {
    now.told = true;
  }
  try {
    io.run_for(60s);
  } catch (const std::bad_alloc&) {
    now.left_the_loop = true;
    io.run_for(60s);  // only one lacks
  }
  now.struck = until_one_fails == 0;
  until_one_fails = 0;
  return now;
}

TEST_CASE("shortage: each lack of Asio's own memory is told, or leaves the loop") {
  int met = 0;
  for (long n = 1; n < 400; ++n) {
    CAPTURE(n);
    const outcome now = with_lack_of(n);
    CHECK((now.told || now.served || now.left_the_loop));
    if (!now.struck) break;
    ++met;
  }
  CHECK(met > 0);
  CHECK(met < 399);
}

}  // namespace
}  // namespace asio_itself
