// SPDX-License-Identifier: BSL-1.0
// Waits for room in a link's outbox, abandoned: the peer is there, but does not read.
#include <asio/co_spawn.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <rpc/engine_link.hpp>
#include <rpc/live_abandoned.hpp>
#include <rref/gate.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace abandoned_room {

using namespace weft::testing;
using weft::as_expected;
using weft::call_progress;
using weft::duration;
using weft::options;
using weft::within;

/// Where the reading thread of one way's peer stops.
std::atomic<gate*> the_door{nullptr};

/// An immediate function: it runs on the thread that reads.
weft::immediate<int> stop_reading(int n) {
  the_door.load()->pass();
  return n;
}
void take(std::string) {}
int twice(int n) { return 2 * n; }

/// There is no room while one frame, or one byte, waits to be written.
struct of_frames {
  static void limit(options& o) { o.outbox_frames = 1; }
};
struct of_bytes {
  static void limit(options& o) { o.outbox_bytes = 1; }
};

template <class Limit>
class for_outbox : public live_scene<> {
 public:
  static constexpr got_as_far_as went{call_progress::not_sent, call_progress::not_sent};
  for_outbox(over how, unsigned io_threads)
      : live_scene(how, limited(io_threads)), how_(how), io_threads_(io_threads) {
    the_door = &door_;
  }
  ~for_outbox() { door_.open(); }
  void prepare() {
    auto stop = [](weft::peer at) -> asio::awaitable<void> {
      static_cast<void>(co_await at.call<&stop_reading>(1, as_expected));
    };
    asio::co_spawn(weft::detail::context_of(me()), stop(other()), [](std::exception_ptr) {});
    until("the peer stops reading", [this] { return door_.arrived() == 1; });
    // A pipe inside the process holds 1024 frames, a connection less than 16 MiB.
    const std::string text(how_ == over::inproc ? 0 : std::size_t{16} << 20, 'x');
    const weft::peer to = other();
    for (int i = 0; i < 2000 && engine_link(to.self(), to.rank()).can_send(); ++i)
      to.post<&take>(text);
    if (engine_link(to.self(), to.rank()).can_send())
      throw std::runtime_error("nothing fills the outbox");
  }
  asio::awaitable<void> wait(duration limit) {
    const weft::peer to = other();
    check_42(co_await to.call<&twice>(21, within(limit)));
  }
  [[nodiscard]] bool waits() { return engine_link(me(), there).has_waiters(); }
  void complete() { door_.open(); }
  /// All is written, so the line is being woken. Without I/O threads it is the thread that is held
  /// here that writes: it has been told that it may, when the peer has taken what was in the pipe.
  [[nodiscard]] bool arrives() {
    if (io_threads_ > 0 && io_threads_ != by_default)
      return engine_link(me(), there).waiting() == 0;
    return all().at(there).stats().served > 1;
  }
  asio::awaitable<void> again() {
    const weft::peer to = other();
    check_42(co_await to.call<&twice>(21));
  }

 private:
  static options limited(unsigned io_threads) {
    options o = with_io_threads(io_threads);
    o.lost_after = {};  // who does not read may give no sign of life
    Limit::limit(o);
    return o;
  }
  const over how_;
  const unsigned io_threads_;
  gate door_;
};
using for_frames = for_outbox<of_frames>;
using for_bytes = for_outbox<of_bytes>;
using for_frames_elsewhere = elsewhere<for_frames>;

TEST_CASE_TEMPLATE("abandoned: a call that waits for room in the outbox", W, for_frames, for_bytes,
                   for_frames_elsewhere) {
  abandon_live<W>();
}

}  // namespace abandoned_room
