// SPDX-License-Identifier: BSL-1.0
// The transports of a worker, most preferred first, and which of them reaches whom.
#pragma once

#include <weft/core/detail/next_turn.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/transport/any_transport.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::engine {

/// `listen` first, then `accept`; both on the thread that runs that io_context, or before it runs.
class transport_set {
 public:
  using accepted = std::function<void(connection_ptr, asio::io_context&)>;

  transport_set() = default;
  explicit transport_set(transport_list all) : transports_(std::move(all)) {}

  /// Opens all listening ends; their addresses in order of preference.
  [[nodiscard]] std::vector<member::address> listen(asio::io_context& io) {
    listener_ = &io;
    std::vector<member::address> out;
    for (const any_transport_ptr& t : transports_) {
      std::string endpoint = t->listen(io);
      out.push_back({std::string(t->name()), std::move(endpoint)});
    }
    return out;
  }

  /// Connects to that member. The lower rank's list decides: its first entry by which the two
  /// reach each other. All endpoints that the member has there are tried in turn; the next try to
  /// connect begins behind the one that was opened, or at which this try was cut off, unless that
  /// `was_right`.
  /// For one member one at a time. Errors: no_common_transport, peer_died (with every endpoint and
  /// what was wrong there), ...
  [[nodiscard]] asio::awaitable<connection_ptr> connect(const membership& all, std::uint32_t to,
                                                        asio::io_context& io) {
    const std::vector<way> ways = ways_to(all, to);
    if (ways.size() == 1) co_return co_await ways[0].by->connect(io, ways[0].endpoint);
    error failed;
    const std::size_t first = starts_->begin(to, ways.size());
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const std::size_t one = (first + i) % ways.size();
      starts_->set(to, one + 1);
      try {
        co_return co_await ways[one].by->connect(io, ways[one].endpoint);
      } catch (const rpc_error& e) {
        if (e.error() == errc::cancelled) throw;
        failed = failed ? both(failed, e.error()) : e.error();
      }
    }
    throw rpc_error(failed);
  }

  /// The connection that was opened last is one to that member.
  void was_right(std::uint32_t to) { starts_->was_right(to); }
  /// Whoever listens there is not that member, or will not have this one. Whether it may be found
  /// at another endpoint.
  [[nodiscard]] bool was_wrong(std::uint32_t to) { return starts_->was_wrong(to); }

  /// Accepts until `close`; each connection lives on `pick()`.
  void accept(const std::function<asio::io_context&()>& pick, const accepted& then) {
    for (const any_transport_ptr& t : transports_) {
      spawn_or_die(*listener_, accept_loop(*t, *listener_, pick, then));
    }
  }

  /// Stops listening.
  void close() noexcept {
    for (const any_transport_ptr& t : transports_) t->close();
  }

 private:
  struct way {
    any_transport* by;
    std::string endpoint;
  };
  [[nodiscard]] std::vector<way> ways_to(const membership& all, std::uint32_t to) const {
    const member& theirs = all.members[to];
    const member& decides = all.rank < to ? all.self() : theirs;
    std::vector<way> out;
    for (const auto& [name, ignored] : decides.addresses) {
      for (const auto& [transport, endpoint] : theirs.addresses) {
        if (transport != name) continue;
        for (const any_transport_ptr& t : transports_) {
          if (t->name() != name || !t->reaches(endpoint)) continue;
          out.push_back({t.get(), endpoint});
          break;
        }
      }
      if (!out.empty()) return out;
    }
    throw rpc_error(errc::no_common_transport,
                    "none of this worker's transports reaches worker '" + theirs.name + "'");
  }
  /// "cannot connect to A: why; to B: why"
  [[nodiscard]] static error both(const error& before, const error& now) {
    constexpr std::string_view same = "cannot connect ";
    const std::string& text = now.detail().text;
    return now.with([&](error_detail& d) {
      d.text = before.detail().text + "; " + text.substr(text.starts_with(same) ? same.size() : 0);
    });
  }

  /// Where to begin at each member; links to different ones are opened by different threads.
  class beginnings {
   public:
    [[nodiscard]] std::size_t begin(std::uint32_t to, std::size_t ways) {
      const std::lock_guard lock(mutex_);
      all_[to].ways = ways;
      return all_[to].next;
    }
    void set(std::uint32_t to, std::size_t next) {
      const std::lock_guard lock(mutex_);
      all_[to].next = next;
    }
    void was_right(std::uint32_t to) {
      const std::lock_guard lock(mutex_);
      entry& e = all_[to];
      if (e.next > 0) --e.next;
      e.wrong = 0;
    }
    [[nodiscard]] bool was_wrong(std::uint32_t to) {
      const std::lock_guard lock(mutex_);
      entry& e = all_[to];
      return ++e.wrong < e.ways;
    }

   private:
    struct entry {
      std::size_t ways = 1;
      std::size_t next = 0;
      std::size_t wrong = 0;  // endpoints, one after the other
    };
    std::mutex mutex_;
    std::map<std::uint32_t, entry> all_;
  };

  static asio::awaitable<void> accept_loop(any_transport& t, asio::io_context& here,
                                           std::function<asio::io_context&()> pick, accepted then) {
    for (;;) {
      asio::io_context& io = pick();
      try {
        then(co_await t.accept(io), io);
        continue;
      } catch (const rpc_error& e) {
        if (e.error() == errc::closed) co_return;  // the worker stops
      }
      co_await detail::next_turn(here);
    }
  }

  transport_list transports_;
  std::unique_ptr<beginnings> starts_ = std::make_unique<beginnings>();
  asio::io_context* listener_ = nullptr;
};

/// The set of these transports.
template <transport... Transports>
[[nodiscard]] transport_set transports_of(Transports... t) {
  transport_list all;
  (all.push_back(make_any_transport(std::move(t))), ...);
  return transport_set(std::move(all));
}

}  // namespace weft::engine
