// SPDX-License-Identifier: BSL-1.0
// Bodies of `cluster_with`. Included only where it is instantiated for the tests of a program: a
// whole worker takes seconds to compile.
#pragma once

#include <weft/engine/services/services.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <asio/post.hpp>

#include <rpc/cluster.hpp>

namespace weft::testing {

[[nodiscard]] inline engine::transport_set make_network(over how,
                                                        const std::shared_ptr<inproc::hub>& hub) {
  switch (how) {
  case over::inproc:
    return engine::transports_of(inproc(hub));
  case over::tcp:
    return engine::transports_of(tcp());
  case over::unix_socket:
    return engine::transports_of(unix_socket());
  }
  return {};
}

template <class... Services>
cluster_with<Services...>::cluster_with(std::uint32_t real, over how, options o,
                                        std::uint32_t strangers)
    : under_way_("a cluster of " + std::to_string(real) + " over " + name_of(how) +
                 ", io_threads " + (o.io_threads ? std::to_string(*o.io_threads) : "by default")) {
  const auto hub = std::make_shared<inproc::hub>();
  members_.token = {0x746f6b656e, 0x1234};
  for (std::uint32_t r = 0; r < real + strangers; ++r) {
    member m{"worker" + std::to_string(r), r % 2 == 0 ? "even" : "odd", {1, r}, {}};
    if (r < real) {
      lives_.push_back(std::make_unique<engine::runtime>(make_network(how, hub), o,
                                                         engine::services<Services...>()));
      m.addresses = lives_.back()->addresses();
    }
    members_.members.push_back(std::move(m));
  }
}

/// In whichever file of a program compiles its workers; weak, as there may be several.
[[gnu::weak]] std::size_t calls_waiting(worker& me, std::uint32_t rank) {
  return static_cast<engine::link&>(me.link_to(rank)).pending().waiting();
}

template <class... Services>
cluster_with<Services...>::~cluster_with() {
  static_cast<void>(join());
}

template <class... Services>
void cluster_with<Services...>::start(const main_function& main_) {
  ends_.resize(lives_.size());
  for (std::uint32_t r = 0; r < lives_.size(); ++r) {
    membership mine = members_;
    mine.rank = r;
    lives_[r]->join(std::move(mine));
  }
  for (std::uint32_t r = 0; r < lives_.size(); ++r) {
    threads_.emplace_back([this, r, main_] { ends_[r] = lives_[r]->run(main_); });
  }
}

template <class... Services>
std::vector<error> cluster_with<Services...>::join() {
  for (std::thread& t : threads_) t.join();
  threads_.clear();
  return ends_;
}

template <class... Services>
void cluster_with<Services...>::stop() {
  asio::post(weft::detail::context_of(at(0)),
             [this] { at(0).shutdown(error(errc::cancelled, "test is over")); });
}

template <class... Services>
worker& cluster_with<Services...>::at(std::uint32_t rank) {
  return lives_[rank]->worker();
}

}  // namespace weft::testing
