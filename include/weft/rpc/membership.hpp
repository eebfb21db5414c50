// SPDX-License-Identifier: BSL-1.0
// The workers of a run: the result of rendezvous, constant afterwards.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/random.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// One worker of the run.
struct member {
  std::string name;
  std::string role;
  id128 incarnation;  ///< of the process, fresh at every start
  /// "transport endpoint" in the order in which the worker prefers them.
  struct address {
    std::string transport;
    std::string endpoint;
  };
  std::vector<address> addresses;
  std::uint64_t window = 256u << 20;  ///< its options::window_bytes
};

/// Index in `members` = rank. Constant: any thread.
///
///   for (const weft::member& m : me.members().members) std::cout << m.name << '\n';
struct membership {
  std::uint32_t rank = 0;  ///< of this worker
  id128 token;             ///< shared by the job; a process without it is refused
  std::vector<member> members;
  /// For errors: the source of the number of workers, if that differs from `options.workers`.
  std::string why_so_many{};

  [[nodiscard]] const member& self() const { return members[rank]; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(members.size());
  }
  /// Rank of the worker with that name; else unknown_peer, which lists the known names.
  [[nodiscard]] expected<std::uint32_t> find(std::string_view name) const {
    for (std::uint32_t r = 0; r < size(); ++r) {
      if (members[r].name == name) return r;
    }
    std::string known;
    for (const member& m : members) known += (known.empty() ? "" : ", ") + m.name;
    return tl::unexpected(error(
        errc::unknown_peer, "no worker is named '" + std::string(name) + "'; there are: " + known +
                                (why_so_many.empty() ? "" : ", " + why_so_many)));
  }
};

}  // namespace weft
