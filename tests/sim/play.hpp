// SPDX-License-Identifier: BSL-1.0
// One world of one seed, with a random program in it, and what it broke.
#pragma once

#include <cstdint>
#include <sim/calls.hpp>
#include <string>
#include <vector>

namespace weft::testing {

enum class profile : std::uint8_t { calm, brutal };
enum class program : std::uint8_t { calls, references, habits };
[[nodiscard]] const char* name_of(profile p) noexcept;
[[nodiscard]] const char* name_of(program p) noexcept;

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
  std::size_t calls = 0;
  double virtual_seconds = 0;
  sim::record record;
  std::string story;
};

/// The world that a seed makes: what may go wrong is drawn too, not everything in each.
[[nodiscard]] sim::settings world_of(const to_play& p);
[[nodiscard]] played play(const to_play& p);

}  // namespace weft::testing
