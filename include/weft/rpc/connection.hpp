// SPDX-License-Identifier: BSL-1.0
// Connections without their type (one virtual call per batch), and the network that opens them.
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/transport/concepts.hpp>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/use_awaitable.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace weft {

/// See the concept `connection` for what each member promises.
class any_connection {
 public:
  virtual ~any_connection() = default;
  virtual written try_write(cursor& batch) noexcept = 0;
  virtual asio::awaitable<void> writable() = 0;
  virtual asio::awaitable<void> read(frame_sink& sink) = 0;
  virtual void close() noexcept = 0;
  /// Frames that it took and has not written: nothing is lost by `close` once there are none.
  [[nodiscard]] virtual std::size_t unsent_frames() const noexcept = 0;
  [[nodiscard]] virtual std::string_view transport() const noexcept = 0;
  /// Goes to another io_context, if it can. On its I/O thread, while nothing waits in it.
  virtual bool move_to(asio::io_context& io) = 0;
  /// The other end may vanish without a word.
  [[nodiscard]] virtual bool needs_life() const noexcept = 0;
};

using connection_ptr = std::shared_ptr<any_connection>;

template <connection C>
[[nodiscard]] connection_ptr erase(C c, std::string_view transport) {
  struct erased final : any_connection {
    erased(C connection, std::string_view name) : c_(std::move(connection)), name_(name) {}
    written try_write(cursor& batch) noexcept override { return c_.try_write(batch); }
    asio::awaitable<void> writable() override { return c_.writable(); }
    asio::awaitable<void> read(frame_sink& sink) override { return c_.read(sink); }
    void close() noexcept override { c_.close(); }
    [[nodiscard]] std::size_t unsent_frames() const noexcept override {
      return weft::unsent_frames(c_);
    }
    [[nodiscard]] std::string_view transport() const noexcept override { return name_; }
    bool move_to(asio::io_context& io) override {
      if constexpr (requires { c_.move_to(io); }) {
        return c_.move_to(io);
      } else {
        return false;
      }
    }
    [[nodiscard]] bool needs_life() const noexcept override {
      if constexpr (requires { C::same_process; }) {
        return !C::same_process;
      } else {
        return true;
      }
    }
    C c_;
    std::string name_;
  };
  return std::make_shared<erased>(std::move(c), transport);
}

/// The transports of a worker, as the worker sees them.
class network {
 public:
  virtual ~network() = default;
  /// Opens all listening ends; their addresses in order of preference.
  virtual std::vector<member::address> listen(asio::io_context& io) = 0;
  /// Connects to that member. The lower rank's list decides: its first entry by which the two
  /// reach each other. Errors: no_common_transport, peer_died, ...
  virtual asio::awaitable<connection_ptr> connect(const membership& all, std::uint32_t to,
                                                  asio::io_context& io) = 0;
  /// Accepts for ever, on the io_context given to `listen`; each connection lives on `pick()`.
  virtual void accept(std::function<asio::io_context&()> pick,
                      std::function<void(connection_ptr, asio::io_context&)> accepted) = 0;
  /// Stops listening.
  virtual void close() noexcept = 0;
};

/// A network of transports fixed at compile time, most preferred first.
template <transport... Transports>
class network_of final : public network {
 public:
  network_of()
    requires(std::is_default_constructible_v<Transports> && ...)
  = default;
  explicit network_of(Transports... transports)
    requires(sizeof...(Transports) > 0)
      : transports_(std::move(transports)...) {}

  std::vector<member::address> listen(asio::io_context& io) override {
    listener_ = &io;
    std::vector<member::address> out;
    each([&](auto& t) { out.push_back({std::string(t.name), t.listen(io)}); });
    return out;
  }

  asio::awaitable<connection_ptr> connect(const membership& all, std::uint32_t to,
                                          asio::io_context& io) override {
    const member& mine = all.self();
    const member& theirs = all.members[to];
    const member& decides = all.rank < to ? mine : theirs;
    for (const auto& [name, ignored] : decides.addresses) {
      for (const auto& [transport, endpoint] : theirs.addresses) {
        if (transport != name) continue;
        if (auto opening = open(transport, endpoint, io)) co_return co_await std::move(*opening);
      }
    }
    throw rpc_error(errc::no_common_transport,
                    "none of this worker's transports reaches worker '" + theirs.name + "'");
  }

  void accept(std::function<asio::io_context&()> pick,
              std::function<void(connection_ptr, asio::io_context&)> accepted) override {
    each([&](auto& t) {
      asio::co_spawn(*listener_, accept_loop(t, pick, accepted), asio::detached);
    });
  }

  void close() noexcept override {
    each([](auto& t) { t.close(); });
  }

 private:
  template <class Visit>
  void each(Visit&& visit) {
    std::apply([&](auto&... t) { (visit(t), ...); }, transports_);
  }
  std::optional<asio::awaitable<connection_ptr>>
  open(std::string_view name, const std::string& endpoint, asio::io_context& io) {
    std::optional<asio::awaitable<connection_ptr>> out;
    each([&](auto& t) {
      if (!out && t.name == name && t.reaches(endpoint)) out.emplace(open_with(t, endpoint, io));
    });
    return out;
  }
  template <class T>
  static asio::awaitable<connection_ptr> open_with(T& t, std::string endpoint,
                                                   asio::io_context& io) {
    co_return erase(co_await t.connect(io, std::move(endpoint)), T::name);
  }
  template <class T>
  static asio::awaitable<void>
  accept_loop(T& t, std::function<asio::io_context&()> pick,
              std::function<void(connection_ptr, asio::io_context&)> accepted) {
    for (;;) {
      asio::io_context& io = pick();
      try {
        accepted(erase(co_await t.accept(io), T::name), io);
        continue;
      } catch (const rpc_error& e) {
        if (e.error() == errc::closed) co_return;  // the worker stops
      } catch (const std::bad_alloc&) {
        // That one is closed; the next may find memory.
      }
      co_await asio::post(asio::use_awaitable);
    }
  }

  std::tuple<Transports...> transports_;
  asio::io_context* listener_ = nullptr;
};

}  // namespace weft
