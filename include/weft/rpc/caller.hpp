// SPDX-License-Identifier: BSL-1.0
// The caller, as the function that serves its call sees it.
#pragma once

#include <weft/rpc/fwd.hpp>

#include <cstdint>
#include <string_view>

namespace weft {

/// The caller. weft passes it to functions whose first parameter is `const weft::caller&`. Lives as
/// long as the call. Constant: any thread.
///
///   int version(const weft::caller& who) { return who.name() == "old" ? 1 : 2; }
class caller {
 public:
  caller(worker& me, std::uint32_t rank, std::string_view name) noexcept
      : me_(&me), rank_(rank), name_(name) {}
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  /// The worker that runs the function.
  [[nodiscard]] worker& self() const noexcept { return *me_; }

 private:
  worker* me_;
  std::uint32_t rank_;
  std::string_view name_;
};

}  // namespace weft
