// SPDX-License-Identifier: BSL-1.0
// Tells a thread that bytes have arrived on connections, though another thread may read them.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/transport/detail/pipe_waiter.hpp>

#include <asio/io_context.hpp>
#include <asio/posix/descriptor_base.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <utility>

#include <sys/epoll.h>
#include <unistd.h>

namespace weft {

/// Connections announce here that frames or bytes have arrived. Any thread.
class arrival_ends final : public ref_counted {
 public:
  /// Whether sockets announce here, too, or only connections without descriptors.
  enum class of : std::uint8_t { sockets_too, no_sockets };

  /// For sockets, it opens one descriptor. If that fails, it throws std::system_error.
  arrival_ends(asio::io_context& at, of what)
      : set_(what == of::sockets_too ? ::epoll_create1(EPOLL_CLOEXEC) : -1),
        bell_(make_intrusive<detail::pipe_waiter>(at)) {
    if (what == of::sockets_too && set_ < 0) fail("cannot make a set of connections");
  }
  arrival_ends(const arrival_ends&) = delete;
  arrival_ends& operator=(const arrival_ends&) = delete;
  ~arrival_ends() override {
    if (set_ >= 0) ::close(set_);
  }

  /// Adds a socket. Throws std::system_error.
  void watch(int descriptor) {
    epoll_event what{};
    what.events = EPOLLIN;
    if (::epoll_ctl(set_, EPOLL_CTL_ADD, descriptor, &what) != 0) fail("watching a connection");
    bell_->wake();  // something may have been read already
  }
  /// Removes a socket. Call it before the socket is closed.
  void forget(int descriptor) noexcept { ::epoll_ctl(set_, EPOLL_CTL_DEL, descriptor, nullptr); }
  /// A descriptor that is readable while one of the sockets is; -1: `no_sockets`.
  [[nodiscard]] int set() const noexcept { return set_; }
  /// A connection without a descriptor wakes this with each frame.
  [[nodiscard]] const intrusive_ptr<detail::pipe_waiter>& bell() const noexcept { return bell_; }

 private:
  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), std::string("weft: ") + what);
  }

  const int set_;
  const intrusive_ptr<detail::pipe_waiter> bell_;
};

/// Waits for an arrival on any of the connections. While it does not wait, arrivals wake no thread.
/// Used on the thread of its io_context. The io_context must drop its work before this object dies.
class arrivals {
 public:
  arrivals(asio::io_context& at, arrival_ends::of what, std::function<void()> come)
      : ends_(make_intrusive<arrival_ends>(at, what)), come_(std::move(come)), watched_(at) {}
  arrivals(const arrivals&) = delete;
  arrivals& operator=(const arrivals&) = delete;
  ~arrivals() { stop(); }

  [[nodiscard]] const intrusive_ptr<arrival_ends>& ends() const noexcept { return ends_; }

  /// Runs `come` once: when there is something to read, or something has arrived since it last ran.
  void wait() {
    if (std::exchange(waits_, true)) return;
    if (const int set = ends_->set(); set >= 0) {
      watched_.assign(set);
      watched_.async_wait(asio::posix::descriptor_base::wait_read, [this](std::error_code ec) {
        if (!ec) detail::or_die([this] { came(); });
      });
    }
    if (std::exchange(bell_waits_, true)) return;
    ends_->bell()->when_woken([this] {
      bell_waits_ = false;
      came();
    });
  }
  /// Ends the wait: `come` does not run.
  void stop() noexcept {
    if (std::exchange(waits_, false) && watched_.is_open()) watched_.release();
  }

 private:
  void came() {
    if (!waits_) return;
    stop();
    come_();
  }

  const intrusive_ptr<arrival_ends> ends_;
  const std::function<void()> come_;
  asio::posix::stream_descriptor watched_;  // the set of sockets, while it waits
  bool waits_ = false;
  bool bell_waits_ = false;
};

}  // namespace weft
