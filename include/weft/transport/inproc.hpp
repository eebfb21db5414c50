// SPDX-License-Identifier: BSL-1.0
// For workers of one process: frames change hands. Only the receiver copies tensors, into its own
// memory.
//
//   auto hub = std::make_shared<weft::inproc::hub>();
//   weft::inproc first(hub), second(hub);          // one per worker
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <weft/transport/concepts.hpp>
#include <weft/transport/detail/frame_pipe.hpp>
#include <weft/transport/detail/host.hpp>

#include <asio/awaitable.hpp>
#include <asio/execution.hpp>
#include <asio/io_context.hpp>

#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// A `transport`. An endpoint is "inproc:<hub>:<number>". It reaches the listeners of its own hub.
/// Threads, cancellation and errors are those of the concept (transport/concepts.hpp).
///
///   int main() { return weft::run<weft::inproc>(main_, {.workers = 4}); }  // workers as threads
class inproc {
 public:
  static constexpr std::string_view name = "inproc";
  using connection_type = detail::pipe_connection;

  class hub;

  /// In a new hub, alone.
  inproc();
  explicit inproc(std::shared_ptr<hub> where) : hub_(std::move(where)) {}
  /// In the one hub of this process, where workers that joined a run find each other.
  [[nodiscard]] static inproc in_this_process();
  inproc(inproc&&) noexcept = default;
  inproc& operator=(inproc&&) = delete;
  ~inproc() { close(); }

  [[nodiscard]] std::string listen(asio::io_context& io);
  [[nodiscard]] bool reaches(std::string_view endpoint) const;
  [[nodiscard]] asio::awaitable<connection_type> connect(asio::io_context& io,
                                                         std::string endpoint) {
    return connect_to(hub_, io.get_executor(), std::move(endpoint));
  }
  [[nodiscard]] asio::awaitable<connection_type> accept(asio::io_context& io) {
    return accept_from(listener_, io.get_executor());
  }
  void close() noexcept;

  /// Two connected ends without a hub.
  [[nodiscard]] static std::pair<connection_type, connection_type>
  make_pair(asio::io_context& io_a, asio::io_context& io_b) {
    auto to_a = make_intrusive<detail::frame_pipe>();
    auto to_b = make_intrusive<detail::frame_pipe>();
    return {connection_type(io_a, to_a, to_b), connection_type(io_b, to_b, to_a)};
  }

 private:
  using executor_type = asio::io_context::executor_type;
  struct listener;

  [[nodiscard]] static asio::awaitable<connection_type>
  connect_to(std::shared_ptr<hub> in, executor_type io, std::string endpoint);
  [[nodiscard]] static asio::awaitable<connection_type> accept_from(intrusive_ptr<listener> from,
                                                                    executor_type io);

  std::shared_ptr<hub> hub_;
  intrusive_ptr<listener> listener_;
  std::uint64_t number_ = 0;
};

/// The transports of one process find each other here. Thread safe.
class inproc::hub {
 public:
  hub() : id_(detail::random_name()) {}
  /// No two hubs have the same id, also in different processes and on different hosts.
  [[nodiscard]] const std::string& id() const noexcept { return id_; }

 private:
  friend class inproc;

  std::string id_;
  std::mutex lock_;
  std::map<std::uint64_t, intrusive_ptr<listener>> listeners_;
  std::uint64_t last_ = 0;
};

struct inproc::listener : ref_counted {
  struct waiting {
    intrusive_ptr<detail::frame_pipe> in;
    intrusive_ptr<detail::frame_pipe> out;
  };

  explicit listener(asio::io_context& io) : arrival(make_intrusive<detail::pipe_waiter>(io)) {}

  const intrusive_ptr<detail::pipe_waiter> arrival;
  std::mutex lock;
  std::vector<waiting> backlog;  // newest first
  bool closed = false;
};

inline inproc::inproc() : hub_(std::make_shared<hub>()) {}
inline inproc inproc::in_this_process() {
  static const auto here = std::make_shared<hub>();
  return inproc(here);
}

inline std::string inproc::listen(asio::io_context& io) {
  listener_ = make_intrusive<listener>(io);
  std::lock_guard hold(hub_->lock_);
  number_ = ++hub_->last_;
  hub_->listeners_.emplace(number_, listener_);
  return "inproc:" + hub_->id() + ":" + std::to_string(number_);
}

inline bool inproc::reaches(std::string_view endpoint) const {
  return endpoint.starts_with("inproc:" + hub_->id() + ":");
}

inline void inproc::close() noexcept {
  if (!listener_) return;
  {
    std::lock_guard hold(hub_->lock_);
    hub_->listeners_.erase(number_);
  }
  std::lock_guard hold(listener_->lock);
  if (std::exchange(listener_->closed, true)) return;
  for (auto& [in, out] : listener_->backlog) {
    in->end();
    out->end();
  }
  listener_->backlog.clear();
  listener_->arrival->wake();
}

inline asio::awaitable<inproc::connection_type>
inproc::connect_to(std::shared_ptr<hub> in, executor_type io, std::string endpoint) {
  intrusive_ptr<listener> to;
  std::uint64_t number = 0;
  const auto digits = endpoint.rfind(':') + 1;
  std::from_chars(endpoint.data() + digits, endpoint.data() + endpoint.size(), number);
  if (endpoint.starts_with("inproc:" + in->id() + ":")) {
    std::lock_guard hold(in->lock_);
    if (const auto found = in->listeners_.find(number); found != in->listeners_.end()) {
      to = found->second;
    }
  }
  auto here = make_intrusive<detail::frame_pipe>();
  auto there = make_intrusive<detail::frame_pipe>();
  if (to) {
    std::lock_guard hold(to->lock);
    if (!to->closed) {
      to->backlog.insert(to->backlog.begin(), {there, here});
      to->arrival->wake();
      co_return connection_type(asio::query(io, asio::execution::context), std::move(here),
                                std::move(there));
    }
  }
  throw rpc_error(error(errc::peer_died, "cannot connect to " + endpoint + ": nobody listens",
                        call_progress::not_sent, origin::transport));
}

inline asio::awaitable<inproc::connection_type> inproc::accept_from(intrusive_ptr<listener> from,
                                                                    executor_type io) {
  if (!from) throw rpc_error(errc::closed, "inproc: accept before listen");
  for (;;) {
    {
      std::lock_guard hold(from->lock);
      if (from->closed) throw rpc_error(errc::closed, "the transport no longer listens");
      if (!from->backlog.empty()) {
        auto [in, out] = std::move(from->backlog.back());
        from->backlog.pop_back();
        co_return connection_type(asio::query(io, asio::execution::context), std::move(in),
                                  std::move(out));
      }
    }
    co_await from->arrival->wait();
  }
}

static_assert(assert_transport<inproc>());

}  // namespace weft

#include <weft/core/detail/macros_on.hpp>
