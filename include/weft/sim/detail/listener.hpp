// SPDX-License-Identifier: BSL-1.0
// How a connection comes about in a simulated world: an attempt goes there, and an answer back.
#pragma once

#include <weft/core/error.hpp>
#include <weft/sim/network.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::sim::detail {

/// The host that an endpoint of that transport names.
[[nodiscard]] inline std::optional<host_id> host_of(std::string_view endpoint,
                                                    std::string_view transport) {
  if (!endpoint.starts_with(transport)) return std::nullopt;
  endpoint.remove_prefix(transport.size());
  if (!endpoint.starts_with(":")) return std::nullopt;
  endpoint.remove_prefix(1);
  host_id host = 0;
  const char* const end = endpoint.data() + endpoint.size();
  const auto [at, ec] = std::from_chars(endpoint.data(), end, host);
  if (ec != std::errc() || at != end) return std::nullopt;
  return host;
}

class listener final : public ref_counted {
 public:
  struct ends {
    intrusive_ptr<channel> in, out;
  };
  listener(network& net, host_id here, asio::io_context& io)
      : net_(net), here_(here), arrival_(make_intrusive<weft::detail::pipe_waiter>(io)) {
    net_.listen(here_, this);
  }
  ~listener() override { close(); }

  [[nodiscard]] asio::awaitable<ends> next() {
    const intrusive_ptr<listener> self(this);
    for (;;) {
      if (closed_) throw rpc_error(errc::closed, "the transport no longer listens");
      if (!backlog_.empty()) {
        ends first = std::move(backlog_.front());
        backlog_.erase(backlog_.begin());
        co_return first;
      }
      co_await arrival_->wait();
    }
  }
  void arrived(ends e) {
    backlog_.push_back(std::move(e));
    arrival_->wake();
  }
  void close() noexcept {
    if (std::exchange(closed_, true)) return;
    net_.listen(here_, nullptr);
    for (const ends& e : std::exchange(backlog_, {})) {
      e.out->writer_gone();
      e.in->reader_gone();
    }
    arrival_->wake();
  }

 private:
  network& net_;
  const host_id here_;
  const intrusive_ptr<weft::detail::pipe_waiter> arrival_;
  std::vector<ends> backlog_;
  bool closed_ = false;
};

}  // namespace weft::sim::detail

namespace weft::sim {

/// One attempt, of whoever waits in `made`.
class connect_attempt final : public ref_counted, private moment {
 public:
  connect_attempt(network& net, asio::io_context& io, intrusive_ptr<channel> there,
                  intrusive_ptr<channel> back)
      : moment(net.time()),
        net_(net),
        there_(std::move(there)),
        back_(std::move(back)),
        answer_(make_intrusive<weft::detail::pipe_waiter>(io)) {
    net_.time().add(*this, net_.time().now() + net_.delay());
  }
  ~connect_attempt() override {
    net_.drop(*this);
    if (taken_ || !asked_) return;  // somebody's, or nobody there knows of it
    there_->writer_gone();
    back_->reader_gone();
  }

  /// Throws rpc_error: peer_died if nobody listens there; cancelled.
  [[nodiscard]] asio::awaitable<void> made() {
    const intrusive_ptr<connect_attempt> self(this);
    while (now_ != state::connected && now_ != state::refused) co_await answer_->wait();
    if (now_ == state::connected) {
      taken_ = true;
      co_return;
    }
    throw rpc_error(error(errc::peer_died, "cannot connect: nobody listens there",
                          call_progress::not_sent, origin::transport));
  }

 private:
  enum class state : std::uint8_t { on_its_way, accepted, turned_away, connected, refused };

  void comes() override {
    const bool there = now_ == state::on_its_way;
    const host_id from = there ? there_->from() : there_->to();
    const host_id to = there ? there_->to() : there_->from();
    if (net_.is_silent(from) || net_.is_silent(to)) return;  // no answer ever
    if (net_.is_cut(from, to)) return net_.hold(*this);
    if (there) {
      detail::listener* const l = net_.listener_at(to);
      asked_ = l && !net_.decide().chance(net_.wires().refused_percent);
      now_ = asked_ ? state::accepted : state::turned_away;
      if (asked_) l->arrived({there_, back_});
      net_.time().add(*this, net_.time().now() + net_.delay());
      return;
    }
    now_ = now_ == state::accepted ? state::connected : state::refused;
    answer_->wake();
  }

  network& net_;
  const intrusive_ptr<channel> there_, back_;
  const intrusive_ptr<weft::detail::pipe_waiter> answer_;
  state now_ = state::on_its_way;
  bool asked_ = false;
  bool taken_ = false;  // by who waited
};

}  // namespace weft::sim
