// SPDX-License-Identifier: BSL-1.0
// One world of one seed, with a random program in it, and what it broke.
#pragma once

#include <weft/engine/services/services.hpp>

#include <cstdint>
#include <memory>
#include <sim/calls.hpp>
#include <string>
#include <utility>
#include <vector>

namespace weft::testing {

enum class profile : std::uint8_t { calm, brutal };
[[nodiscard]] const char* name_of(profile p) noexcept;

/// Of what there was, and how many.
using counts = std::vector<std::pair<const char*, std::uint64_t>>;

/// A program in one world, with what it has seen there. Outlives the world.
class script {
 public:
  virtual ~script() = default;
  /// What each worker's main does.
  virtual asio::awaitable<void> main(worker& me) = 0;
  /// What it has of the world goes, while that still is.
  virtual void let_go() {}
  /// Once the world is gone, and whatever was in it.
  virtual void check() {}
  [[nodiscard]] virtual counts count() const = 0;
};

struct program {
  const char* name;
  engine::service_makers (*services)();
  std::unique_ptr<script> (*begin)(witness& sees);
  /// What some of its worlds are like besides; null: nothing.
  void (*adjust)(std::uint64_t seed, sim::settings& s) = nullptr;

  static const program calls, references, habits, verbs, flows;
  static const program gradients;  // with libtorch
};
[[nodiscard]] const char* name_of(const program& p) noexcept;

struct to_play {
  std::uint64_t seed = 0;
  profile how = profile::calm;
  program what = program::calls;
  std::uint32_t workers = 3;
  bool story = false;
  const sim::record* record = nullptr;  // instead of what the seed chooses
};

struct played {
  std::vector<std::string> broken;
  std::uint64_t hash = 0, steps = 0;
  bool faulty = false;  // something went wrong in it
  counts counted;
  double virtual_seconds = 0;
  sim::record record;
  std::string story;
};

/// The world that a seed makes: what may go wrong is drawn too, not everything in each.
[[nodiscard]] sim::settings world_of(const to_play& p);
[[nodiscard]] played play(const to_play& p);

}  // namespace weft::testing
