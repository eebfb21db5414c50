// SPDX-License-Identifier: BSL-1.0
// The workers of a run: the result of rendezvous, constant afterwards.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/random.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
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

/// Members by rank. Copies share one list, until one of them is changed; reading takes any thread.
class member_list {
 public:
  using value_type = member;
  using const_iterator = std::vector<member>::const_iterator;

  member_list() = default;
  member_list(std::vector<member> all) { list_->all = std::move(all); }

  [[nodiscard]] std::size_t size() const noexcept { return list_->all.size(); }
  [[nodiscard]] bool empty() const noexcept { return list_->all.empty(); }
  const member& operator[](std::size_t rank) const noexcept { return list_->all[rank]; }
  [[nodiscard]] const_iterator begin() const noexcept { return list_->all.begin(); }
  [[nodiscard]] const_iterator end() const noexcept { return list_->all.end(); }
  /// The first one with that name.
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const {
    std::call_once(list_->indexed, [this] {
      for (std::uint32_t r = 0; r < size(); ++r) list_->rank_by_name.emplace(list_->all[r].name, r);
    });
    const auto at = list_->rank_by_name.find(name);
    return at == list_->rank_by_name.end() ? std::nullopt : std::optional(at->second);
  }

  [[nodiscard]] member& change(std::size_t rank) { return own()[rank]; }
  void push_back(member m) { own().push_back(std::move(m)); }

 private:
  struct shared {
    std::vector<member> all;
    std::once_flag indexed;
    std::unordered_map<std::string_view, std::uint32_t> rank_by_name;  // by name, of `all`
  };
  [[nodiscard]] std::vector<member>& own() {
    if (list_.use_count() > 1 || !list_->rank_by_name.empty()) {
      auto mine = std::make_shared<shared>();
      mine->all = list_->all;
      list_ = std::move(mine);
    }
    return list_->all;
  }

  std::shared_ptr<shared> list_ = std::make_shared<shared>();
};

/// Index in `members` = rank. Constant: any thread.
///
///   for (const weft::member& m : me.members().members) std::cout << m.name << '\n';
struct membership {
  std::uint32_t rank = 0;  ///< of this worker
  id128 token;             ///< shared by the job; a process without it is refused
  member_list members;
  /// For errors: the source of the number of workers, if that differs from `options.workers`.
  std::string why_so_many{};

  [[nodiscard]] const member& self() const { return members[rank]; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(members.size());
  }
  /// Rank of the worker with that name; else unknown_peer, which lists the known names.
  [[nodiscard]] expected<std::uint32_t> find(std::string_view name) const {
    if (const auto r = members.find(name)) return *r;
    std::string known;
    for (const member& m : members) known += (known.empty() ? "" : ", ") + m.name;
    return tl::unexpected(error(
        errc::unknown_peer, "no worker is named '" + std::string(name) + "'; there are: " + known +
                                (why_so_many.empty() ? "" : ", " + why_so_many)));
  }
};

}  // namespace weft
