// SPDX-License-Identifier: BSL-1.0
// Which host MASTER_ADDR names, and by which addresses other hosts reach this one.
//
//   MASTER_ADDR ──looked up──► its addresses ──route──► this host's address on the way there
//                                    │
//                                    └─ loopback only: this is rank 0's host; its interfaces count
#pragma once

#include <weft/core/detail/descriptor.hpp>
#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/launch/placement.hpp>
#include <weft/engine/rendezvous/meeting_file.hpp>
#include <weft/rpc/placement.hpp>
#include <weft/transport/detail/stream_listener.hpp>

#include <asio/io_context.hpp>
#include <asio/ip/address.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ip/udp.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace weft::engine {

/// So that a name service that lacks a name is not asked all the time.
inline constexpr std::chrono::milliseconds between_look_ups(250);

using ip_addresses = std::vector<asio::ip::address>;

/// What MASTER_ADDR and MASTER_PORT say.
struct meeting_place {
  std::string host;  ///< a name or an address
  std::uint16_t port = 0;
};
/// Throws rpc_error invalid_argument, which names the variable that says no such thing.
[[nodiscard]] inline meeting_place place_to_meet() {
  const auto host = environment_text("MASTER_ADDR");
  const auto port = environment_number("MASTER_PORT");
  if (!host) {
    throw rpc_error(errc::invalid_argument,
                    "the workers are on several hosts, so MASTER_ADDR and MASTER_PORT must name "
                    "where to meet");
  }
  if (!port || *port == 0 || *port > 65535) {
    throw rpc_error(errc::invalid_argument,
                    "MASTER_ADDR is set, so MASTER_PORT" +
                        (port ? "=" + std::to_string(*port) : std::string()) +
                        " must be a port, from 1 to 65535: the same free one for all workers");
  }
  // As in a URL.
  const bool in_brackets = host->size() > 2 && host->front() == '[' && host->back() == ']';
  return {in_brackets ? host->substr(1, host->size() - 2) : *host,
          static_cast<std::uint16_t>(*port)};
}

/// "MASTER_ADDR='node0'"
[[nodiscard]] inline std::string master_addr() {
  return "MASTER_ADDR='" + environment_text("MASTER_ADDR").value_or("") + "'";
}

/// "10.0.0.1, 10.0.0.2"
[[nodiscard]] inline std::string text_of(const ip_addresses& all) {
  std::string out;
  for (const auto& a : all) out += (out.empty() ? "" : ", ") + a.to_string();
  return out;
}

[[nodiscard]] inline bool only_loopback(const ip_addresses& all) {
  return std::all_of(all.begin(), all.end(), [](const auto& a) { return a.is_loopback(); });
}

inline void add_once(ip_addresses& all, const asio::ip::address& one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

/// One look-up; blocks as long as the host's name service does. None: `why` says so.
[[nodiscard]] inline ip_addresses look_up(const std::string& host, std::error_code& why) {
  asio::io_context io(1);
  asio::ip::tcp::resolver resolver(io);
  ip_addresses out;
  for (const auto& entry : resolver.resolve(host, "9", why)) {
    add_once(out, entry.endpoint().address());
  }
  return out;
}

/// That MASTER_ADDR has no address.
[[nodiscard]] inline std::string not_found(const std::error_code& why) {
  return master_addr() + " is not found by this host's name service (" + why.message() +
         "): it must be a name or an address of rank 0's host";
}

/// The same until there is one. Throws rpc_error rendezvous_failed.
[[nodiscard]] inline ip_addresses look_up(const std::string& host, const countdown& left) {
  for (;;) {
    std::error_code why;
    ip_addresses found = look_up(host, why);
    if (!found.empty()) return found;
    if (left.over()) {
      throw rpc_error(errc::rendezvous_failed,
                      "after " + std::to_string(left.all().count()) + " ms " + not_found(why));
    }
    pause_for(std::min(left.now(), between_look_ups));
  }
}

/// This host's address on the way to that one; none, and `why`, without a way.
[[nodiscard]] inline std::optional<asio::ip::address> source_towards(const asio::ip::address& to,
                                                                     std::error_code& why) {
  asio::io_context io(1);
  asio::ip::udp::socket probe(io);
  std::error_code failed;
  const asio::ip::udp::endpoint there(to, 9);
  weft::detail::open_unshared(probe, there.protocol(), failed);
  if (!failed) probe.connect(there, failed);  // sends nothing
  const auto from = failed ? asio::ip::udp::endpoint() : probe.local_endpoint(failed);
  if (!failed) return from.address();
  why = failed;
  return std::nullopt;
}

/// Whether it is an address of this host: one can listen there.
[[nodiscard]] inline bool is_of_this_host(const asio::ip::address& a) {
  asio::io_context io(1);
  asio::ip::udp::socket probe(io);
  std::error_code failed;
  weft::detail::open_unshared(probe, asio::ip::udp::endpoint(a, 0).protocol(), failed);
  if (!failed) probe.bind({a, 0}, failed);
  return !failed;
}

/// Of interfaces that are up, but for loopback and what holds on one link only.
[[nodiscard]] inline ip_addresses addresses_of_interfaces() {
  ::ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<::ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  ip_addresses out;
  for (const ::ifaddrs* i = first; i; i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    asio::ip::address a;
    if (i->ifa_addr->sa_family == AF_INET) {
      a = asio::ip::address_v4(
          ntohl(reinterpret_cast<const ::sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr));
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      asio::ip::address_v6::bytes_type bytes;
      const auto& from = reinterpret_cast<const ::sockaddr_in6*>(i->ifa_addr)->sin6_addr.s6_addr;
      std::copy(std::begin(from), std::end(from), bytes.begin());
      const asio::ip::address_v6 v6(bytes);
      if (v6.is_link_local()) continue;
      a = v6;
    } else {
      continue;
    }
    if (is_of_this_host(a)) add_once(out, a);
  }
  return out;
}

/// Whether every host calls itself so: who meets there is on one host.
[[nodiscard]] inline bool is_everybodys_own(const std::string& host) {
  std::error_code no_address;
  const auto a = asio::ip::make_address(host, no_address);
  return no_address ? host.starts_with("localhost") : a.is_loopback();
}

/// At which of its addresses other workers reach this one, best first; none: they are all on this
/// host. Blocks; looks MASTER_ADDR up, and asks for the way there, until `left` is over. Throws
/// rpc_error rendezvous_failed, invalid_argument.
[[nodiscard]] inline std::vector<std::string> own_addresses(const placement& where,
                                                            const countdown& left) {
  if (where.one_host()) return {};
  const std::string host = place_to_meet().host;
  const auto texts = [](const ip_addresses& all) {
    std::vector<std::string> out;
    for (const auto& a : all) out.push_back(a.to_string());
    return out;
  };
  for (;;) {
    const ip_addresses there = look_up(host, left);
    std::error_code no_way;
    ip_addresses mine;
    for (const auto& a : there) {
      if (a.is_loopback() && !only_loopback(there)) continue;
      if (const auto from = source_towards(a, no_way)) add_once(mine, *from);
    }
    if (!mine.empty() && !only_loopback(mine)) return texts(mine);
    std::string problem;
    if (mine.empty()) {
      problem = master_addr() +
                (there.front().to_string() == host ? "" : " (" + text_of(there) + ")") +
                " cannot be reached from this host: " + no_way.message();
    } else {
      // It may well be that nothing but a guess says that there are several hosts.
      if (!where.hosts_known && is_everybodys_own(host)) return {};
      const ip_addresses interfaces = addresses_of_interfaces();
      if (!interfaces.empty()) return texts(interfaces);
      if (!where.hosts_known) return {};
      problem = master_addr() + " is " + text_of(there) +
                " on this host, whose other interfaces are down: workers on other hosts cannot "
                "reach this one; give it an address that they can reach";
    }
    if (left.over()) {
      throw rpc_error(errc::rendezvous_failed,
                      "after " + std::to_string(left.all().count()) + " ms " + problem);
    }
    pause_for(std::min(left.now(), between_look_ups));
  }
}

/// Where the store listens: at every interface, as libtorch does it. Throws rpc_error
/// rendezvous_failed if the port is not to be had.
[[nodiscard]] inline descriptor listen_for_store(std::uint16_t port) {
  int why = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    descriptor fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    const int no = 0;
    ::sockaddr_in6 v6{};
    ::sockaddr_in v4{};
    v6.sin6_family = AF_INET6;
    v4.sin_family = AF_INET;
    v6.sin6_port = v4.sin_port = htons(port);
    const bool is_v6 = family == AF_INET6;
    const auto* const at =
        is_v6 ? reinterpret_cast<const ::sockaddr*>(&v6) : reinterpret_cast<const ::sockaddr*>(&v4);
    if (fd && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        (!is_v6 || ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0) &&
        ::bind(fd.get(), at, is_v6 ? sizeof v6 : sizeof v4) == 0 &&
        ::listen(fd.get(), SOMAXCONN) == 0) {
      return fd;
    }
    why = errno;
    if (why == EADDRINUSE) break;
  }
  const std::string variable = "MASTER_PORT=" + std::to_string(port);
  throw rpc_error(
      errc::rendezvous_failed,
      why == EADDRINUSE
          ? variable + " is taken on rank 0's host, by another run or another program: each "
                       "run needs a port of its own"
          : "rank 0 cannot listen at " + variable + ": " + std::system_category().message(why));
}

/// The first of these that accepts a connection within that time; none, and `why`. Blocks.
[[nodiscard]] inline std::optional<asio::ip::address> accepts(const ip_addresses& there,
                                                              std::uint16_t port,
                                                              std::chrono::milliseconds within,
                                                              std::error_code& why) {
  asio::io_context io(1);
  std::vector<asio::ip::tcp::socket> tries;
  tries.reserve(there.size());
  std::optional<asio::ip::address> out;
  if (!there.empty()) why = asio::error::timed_out;
  for (const auto& a : there) {
    auto& one = tries.emplace_back(io);
    const asio::ip::tcp::endpoint at(a, port);
    std::error_code no_socket;
    weft::detail::open_unshared(one, at.protocol(), no_socket);
    if (no_socket) {
      why = no_socket;
      continue;
    }
    one.async_connect(at, [&out, &why, &io, a](const std::error_code& failed) {
      if (failed) {
        why = failed;
        return;
      }
      if (!out) out = a;
      io.stop();
    });
  }
  io.run_for(within);
  return out;
}

/// Of the addresses of rank 0's host, where rank 0 itself reaches the store, which listens at that
/// socket. Throws rpc_error rendezvous_failed if the others would look for it on another host.
[[nodiscard]] inline std::string reaches_itself(const descriptor& listens, const meeting_place& at,
                                                const countdown& left) {
  const ip_addresses there = look_up(at.host, left);
  for (const auto& a : there) {
    if (is_of_this_host(a)) return a.to_string();
  }
  // Whoever translates addresses may lead there all the same, perhaps in a moment.
  const countdown patience(std::min<duration>(left.now(), std::chrono::seconds(2)));
  std::error_code why;
  do {
    ::pollfd arrived{listens.get(), POLLIN, 0};
    if (accepts(there, at.port, std::min(patience.now(), std::chrono::milliseconds(500)), why) &&
        ::poll(&arrived, 1, 100) > 0) {
      return "127.0.0.1";
    }
    pause_for(std::min(patience.now(), std::chrono::milliseconds(50)));
  } while (!patience.over());
  throw rpc_error(errc::rendezvous_failed,
                  master_addr() +
                      (there.front().to_string() == at.host
                           ? " is no address of this host"
                           : " is " + text_of(there) + ", no address of this host") +
                      ", and rank 0 holds the store: it must name rank 0's host");
}

}  // namespace weft::engine
