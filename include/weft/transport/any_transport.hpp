// SPDX-License-Identifier: BSL-1.0
// A transport without its type, as the engine sees it. What stands here is all that is compiled for
// a transport of your own in a program whose engine is compiled elsewhere.
#pragma once

#include <weft/transport/any_connection.hpp>
#include <weft/transport/concepts.hpp>
#include <weft/transport/fwd.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// See the concept `transport` for what each member promises.
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

namespace detail {

template <transport T>
class erased_transport final : public any_transport {
 public:
  explicit erased_transport(T t) : t_(std::move(t)) {}
  [[nodiscard]] std::string_view name() const noexcept override { return T::name; }
  [[nodiscard]] std::string listen(asio::io_context& io) override { return t_.listen(io); }
  [[nodiscard]] bool reaches(std::string_view endpoint) const override {
    return t_.reaches(endpoint);
  }
  [[nodiscard]] asio::awaitable<connection_ptr> connect(asio::io_context& io,
                                                        std::string endpoint) override {
    return erase(t_.connect(io, std::move(endpoint)));
  }
  [[nodiscard]] asio::awaitable<connection_ptr> accept(asio::io_context& io) override {
    return erase(t_.accept(io));
  }
  void close() noexcept override { t_.close(); }

 private:
  template <class Connection>
  static asio::awaitable<connection_ptr> erase(asio::awaitable<Connection> opening) {
    co_return make_any_connection(co_await std::move(opening), T::name);
  }
  T t_;
};

}  // namespace detail

template <transport T>
[[nodiscard]] any_transport_ptr make_any_transport(T t) {
  return std::make_unique<detail::erased_transport<T>>(std::move(t));
}

namespace detail {
/// Of one that is compiled with the engine its name is enough.
template <class T>
inline constexpr bool is_compiled_in = false;
}  // namespace detail

/// What `weft::run` can be given.
template <class T>
concept runnable = detail::is_compiled_in<T> || transport<T>;

namespace detail {
template <transport T>
[[nodiscard]] any_transport_ptr transport_at(const std::string& address) {
  if constexpr (requires(typename T::options o) {
                  o.address = std::string();
                  T(o);
                }) {
    typename T::options o;
    if (!address.empty()) o.address = address;
    return make_any_transport(T(o));
  } else {
    return make_any_transport(T());
  }
}
}  // namespace detail

/// One that is reached at `address`, a host's; empty: from this host only.
template <runnable T>
[[nodiscard]] any_transport_ptr make_transport_at(const std::string& address) {
  return detail::transport_at<T>(address);
}

}  // namespace weft
