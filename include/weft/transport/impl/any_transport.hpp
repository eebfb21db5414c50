// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/transport/any_transport.hpp.
#pragma once

#include <weft/transport/any_connection.hpp>
#include <weft/transport/any_transport.hpp>
#include <weft/transport/concepts.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

namespace detail {

template <transport T>
class erased_transport final : public any_transport {
 public:
  /// Constructs the transport of these arguments: it need not be movable.
  template <class... From>
  explicit erased_transport(std::in_place_t, From&&... from) : t_(std::forward<From>(from)...) {}
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
any_transport_ptr make_any_transport(T t) {
  return std::make_unique<detail::erased_transport<T>>(std::in_place, std::move(t));
}

namespace detail {
template <transport T>
[[nodiscard]] transport_list transports_at(const std::vector<std::string>& addresses) {
  using erased = erased_transport<T>;
  transport_list all;
  if constexpr (requires(typename T::options o) {
                  o.address = std::string();
                  T(o);
                }) {
    for (const std::string& address : addresses) {
      typename T::options o;
      o.address = address;
      all.push_back(std::make_unique<erased>(std::in_place, o));
    }
    if (addresses.empty()) {
      all.push_back(std::make_unique<erased>(std::in_place, typename T::options()));
    }
  } else if constexpr (requires { T::in_this_process(); }) {
    all.push_back(make_any_transport(T::in_this_process()));
  } else {
    all.push_back(std::make_unique<erased>(std::in_place));
  }
  return all;
}
}  // namespace detail

template <runnable T>
transport_list make_transports_at(const std::vector<std::string>& addresses) {
  return detail::transports_at<T>(addresses);
}

}  // namespace weft
