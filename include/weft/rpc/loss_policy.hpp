// SPDX-License-Identifier: BSL-1.0
// Whether a run ends when a worker is lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// Which lost workers end the run: `options.on_loss`. A value; any thread may read it.
///
///   o.on_loss = weft::loss_policy::go_on_without({"client"});
///
/// The loss of rank 0 ends the run under every policy: rank 0 decides when a run is over.
class loss_policy {
 public:
  /// Every loss ends the run.
  loss_policy() = default;
  /// Only the loss of rank 0 ends the run.
  [[nodiscard]] static loss_policy go_on() {
    loss_policy out;
    out.without_ = whom::anybody;
    return out;
  }
  /// The loss of a worker with one of these roles does not end the run; any other loss does.
  [[nodiscard]] static loss_policy go_on_without(std::vector<std::string> roles) {
    loss_policy out;
    out.without_ = whom::roles;
    out.roles_ = std::move(roles);
    return out;
  }

  /// Whether the run goes on if a worker of that role, other than rank 0, is lost.
  [[nodiscard]] bool goes_on_without(std::string_view role) const {
    return without_ == whom::anybody ||
           (without_ == whom::roles &&
            std::find(roles_.begin(), roles_.end(), role) != roles_.end());
  }

 private:
  enum class whom : std::uint8_t { nobody, roles, anybody };
  whom without_ = whom::nobody;
  std::vector<std::string> roles_;
};

}  // namespace weft
