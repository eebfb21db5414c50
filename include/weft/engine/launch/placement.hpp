// SPDX-License-Identifier: BSL-1.0
// What the launcher said, in the environment.
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/launch/launch.hpp>
#include <weft/engine/launch/launch_mark.hpp>
#include <weft/rpc/placement.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
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

/// The step of a Slurm job that this process is a task of, as srun names it; none in a shell that
/// Slurm has started itself, for a batch script or a user, in which programs run as anywhere.
[[nodiscard]] inline std::optional<std::string> slurm_step() {
  auto step = environment_text("SLURM_STEP_ID");
  // Slurm's own steps have the highest numbers there are.
  if (step && step->size() == 10 && *step >= "4294967280") step = std::nullopt;
  return step;
}

/// One of these that says a number, the first.
[[nodiscard]] inline std::optional<std::uint32_t>
first_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto number = environment_number(name)) return number;
  }
  return std::nullopt;
}

/// What srun says of its step. The variables of the step itself come first: others may be of the
/// job. Of a heterogeneous one they are of a part, and the others of the whole.
[[nodiscard]] inline std::optional<std::uint32_t> tasks_of_step() {
  if (!slurm_step()) return std::nullopt;
  if (environment_text("SLURM_HET_SIZE")) return environment_number("SLURM_NTASKS");
  return first_number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
}
[[nodiscard]] inline std::optional<std::uint32_t> hosts_of_step() {
  if (!slurm_step()) return std::nullopt;
  if (environment_text("SLURM_HET_SIZE")) return environment_number("SLURM_NNODES");
  return first_number({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
}

/// Fills in how many of the workers are on this host; `said` by the launcher's own variable.
inline void count_on_this_host(placement& where, std::optional<std::uint32_t> said) {
  const bool by_srun = where.launcher == "srun";
  const std::uint32_t given = said.value_or(0);
  if (given > 0 && !by_srun) {
    where.on_this_host = given;
    where.hosts_known = true;
    return;
  }
  // srun says on how many hosts its tasks are, if these are the workers; and how many a host of the
  // job may have, of which a step may use less.
  const auto hosts = tasks_of_step() == where.size ? hosts_of_step() : std::nullopt;
  where.hosts_known = hosts.has_value();
  if (hosts == 1u) {
    where.on_this_host = where.size;
  } else if (hosts) {
    where.on_this_host = std::clamp(given, 1u, std::max(where.size, 2u) - 1);
  } else if (given > 0) {
    where.on_this_host = std::min(given, where.size);
  } else {
    // Without MASTER_ADDR nothing says that there is another host.
    where.on_this_host = environment_text("MASTER_ADDR") ? 1 : where.size;
  }
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
    const bool srun = std::string_view(s.name) == "srun";
    const auto size = srun ? detail::tasks_of_step() : detail::environment_number(s.size);
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
                                                  " is not below " +
                                                  (srun ? "the step's number of tasks" : s.size) +
                                                  "=" + std::to_string(*size));
    }
    // A batch of one task is no answer to which of several workers this is.
    if (half && *size == 1) continue;
    placement out{.rank = *rank, .size = *size, .launcher = s.name};
    detail::count_on_this_host(out, detail::environment_number(s.local));
    return out;
  }
  if (half) throw rpc_error(std::move(half));
  return std::nullopt;
}

}  // namespace weft
