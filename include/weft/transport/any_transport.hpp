// SPDX-License-Identifier: BSL-1.0
// A transport without its type, as the engine sees it. If the engine is compiled elsewhere, your
// program compiles only this for a transport of your own.
#pragma once

#include <weft/transport/any_connection.hpp>
#include <weft/transport/concepts.hpp>
#include <weft/transport/fwd.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// The concept `transport` has the duty and the threads of each member.
///
///   weft::any_transport_ptr t = weft::make_any_transport(weft::tcp());
class any_transport {
 public:
  virtual ~any_transport() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual std::string listen(asio::io_context& io) = 0;
  [[nodiscard]] virtual bool reaches(std::string_view endpoint) const = 0;
  [[nodiscard]] virtual asio::awaitable<connection_ptr> connect(asio::io_context& io,
                                                                std::string endpoint) = 0;
  [[nodiscard]] virtual asio::awaitable<connection_ptr> accept(asio::io_context& io) = 0;
  virtual void close() noexcept = 0;
};

using any_transport_ptr = std::unique_ptr<any_transport>;
/// Most preferred first.
using transport_list = std::vector<any_transport_ptr>;

/// `t` without its type.
template <transport T>
[[nodiscard]] any_transport_ptr make_any_transport(T t);

namespace detail {
/// For a transport that is compiled with the engine, its name is enough.
template <class T>
inline constexpr bool is_compiled_in = false;
}  // namespace detail

/// A transport that `weft::run` accepts.
template <class T>
concept runnable = detail::is_compiled_in<T> || transport<T>;

/// One transport for each of these addresses of this host, at which other hosts reach it. No
/// address: reachable from this host only. A transport that takes no address is made once.
template <runnable T>
[[nodiscard]] transport_list make_transports_at(const std::vector<std::string>& addresses);

}  // namespace weft

#include <weft/transport/impl/any_transport.hpp>
