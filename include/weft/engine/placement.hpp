// SPDX-License-Identifier: BSL-1.0
// What the launcher said, in the environment.
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/launch.hpp>
#include <weft/engine/launch_mark.hpp>
#include <weft/rpc/placement.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

namespace detail {

/// The variable; nothing if it is empty, or launch_local set it for the worker that started this
/// process.
[[nodiscard]] inline std::optional<std::string> environment_text(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT: before any thread changes it
  if (!value || !*value) return std::nullopt;
  constexpr std::array<std::string_view, 5> set_by_launch_local = {
      "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  if (std::ranges::find(set_by_launch_local, name) != set_by_launch_local.end() &&
      engine::launched_for_another()) {
    return std::nullopt;
  }
  return std::string(value);
}
/// The variable as a number; invalid_argument names a variable that is not one.
[[nodiscard]] inline std::optional<std::uint32_t> environment_number(const char* name) {
  const auto text = environment_text(name);
  if (!text) return std::nullopt;
  std::uint32_t value = 0;
  const auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (ec != std::errc() || end != text->data() + text->size()) {
    throw rpc_error(errc::invalid_argument,
                    std::string(name) + "='" + *text + "' in the environment is not a number");
  }
  return value;
}

}  // namespace detail

WEFT_DECL std::optional<placement> placement_from_environment() {
  struct source {
    const char* rank;
    const char* size;
    const char* local;
    const char* name;
    bool sets_both;  // Slurm's own shells have one of its two, some launchers one of PMI's
  };
  static constexpr std::array<source, 4> sources = {{
      {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "torchrun", true},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun",
       true},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "mpirun", false},
      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "srun", false},
  }};
  error half;  // of a launcher
  for (const source& s : sources) {
    const auto rank = detail::environment_number(s.rank);
    const auto size = detail::environment_number(s.size);
    if (!rank || !size) {
      if ((rank || size) && s.sets_both) {
        half = error(errc::invalid_argument,
                     std::string(rank ? s.rank : s.size) + " is in the environment and " +
                         (rank ? s.size : s.rank) + " is not: both say which worker this is");
      }
      continue;
    }
    if (*rank >= *size) {
      throw rpc_error(errc::invalid_argument, std::string(s.rank) + "=" + std::to_string(*rank) +
                                                  " is not below " + s.size + "=" +
                                                  std::to_string(*size));
    }
    // A batch of one task is no answer to which of several workers this is.
    if (half && *size == 1) continue;
    placement out{*rank, *size, detail::environment_number(s.local).value_or(0), s.name};
    if (out.on_this_host == 0) {
      // Without MASTER_ADDR nothing says that there is another host.
      out.on_this_host = detail::environment_text("MASTER_ADDR") ? 1 : out.size;
    }
    return out;
  }
  if (half) throw rpc_error(std::move(half));
  return std::nullopt;
}

}  // namespace weft
