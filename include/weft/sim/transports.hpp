// SPDX-License-Identifier: BSL-1.0
// The transports of a simulated world. One moves whole frames. The others move bytes under
// `framed`, so that frames arrive in pieces.
//
//   weft::sim::frames a(net, 0), b(net, 1);  // one per host
#pragma once

#include <weft/core/error.hpp>
#include <weft/sim/detail/ends.hpp>
#include <weft/sim/detail/listener.hpp>
#include <weft/sim/network.hpp>
#include <weft/transport/concepts.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace weft::sim {

/// A `transport` over a simulated network; `Ends` decides how a connection works. One thread.
template <class Ends>
class basic_transport {
 public:
  static constexpr std::string_view name = Ends::name;
  using connection_type = typename Ends::connection_type;

  basic_transport(network& net, host_id here) : net_(&net), here_(here) {}
  basic_transport(basic_transport&&) noexcept = default;
  basic_transport& operator=(basic_transport&&) = delete;
  ~basic_transport() { close(); }

  [[nodiscard]] std::string listen(asio::io_context& io) {
    listener_ = make_intrusive<detail::listener>(*net_, here_, io);
    return std::string(name) + ":" + std::to_string(here_);
  }
  [[nodiscard]] bool reaches(std::string_view endpoint) const {
    return detail::host_of(endpoint, name).has_value();
  }
  [[nodiscard]] asio::awaitable<connection_type> connect(asio::io_context& io,
                                                         std::string endpoint) {
    return connect_from(*net_, here_, io, std::move(endpoint));
  }
  [[nodiscard]] asio::awaitable<connection_type> accept(asio::io_context& io) {
    return accept_from(listener_, io);
  }
  void close() noexcept {
    if (listener_) listener_->close();
  }

 private:
  using channel_type = typename Ends::channel_type;

  static asio::awaitable<connection_type> connect_from(network& net, host_id here,
                                                       asio::io_context& io, std::string endpoint) {
    const auto to = detail::host_of(endpoint, name);
    if (!to) {
      throw rpc_error(error(errc::peer_died, "cannot connect to " + endpoint + ": no such host",
                            call_progress::not_sent, origin::transport));
    }
    auto there = make_intrusive<channel_type>(net, here, *to);
    auto back = make_intrusive<channel_type>(net, *to, here);
    const auto attempt = make_intrusive<connect_attempt>(net, io, there, back);
    co_await attempt->made();
    co_return Ends::connect(io, std::move(back), std::move(there));
  }
  static asio::awaitable<connection_type> accept_from(intrusive_ptr<detail::listener> from,
                                                      asio::io_context& io) {
    if (!from) throw rpc_error(errc::closed, "accept before listen");
    auto [in, out] = co_await from->next();
    co_return Ends::connect(io, intrusive_ptr<channel_type>(static_cast<channel_type*>(in.get())),
                            intrusive_ptr<channel_type>(static_cast<channel_type*>(out.get())));
  }

  network* net_;
  host_id here_;
  intrusive_ptr<detail::listener> listener_;
};

/// Moves whole frames.
using frames = basic_transport<detail::whole_frames>;
/// Moves bytes, which arrive in pieces of any size.
using bytes = basic_transport<detail::pieces_of_bytes>;
/// Moves bytes, too, through a stream that cannot write at once.
using late_bytes = basic_transport<detail::late_pieces_of_bytes>;

static_assert(assert_transport<frames>());
static_assert(assert_transport<bytes>());
static_assert(assert_transport<late_bytes>());

}  // namespace weft::sim
