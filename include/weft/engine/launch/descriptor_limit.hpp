// SPDX-License-Identifier: BSL-1.0
// Whether this process may open as many files as it is going to need.
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>

#include <sys/resource.h>

namespace weft::engine {

[[nodiscard]] inline std::size_t open_descriptors() {
  std::error_code ec;
  const std::filesystem::directory_iterator all("/proc/self/fd", ec);
  if (ec) return 3;
  return static_cast<std::size_t>(std::distance(begin(all), end(all))) - 1;  // less its own
}

/// What is kept free beyond what is counted: the C library, libtorch, a sanitizer open a file or a
/// pipe for a moment (a name service, /proc, a check of memory), and fail in odd ways without.
inline constexpr std::size_t spare_descriptors = 4;

/// Makes sure that `more` files can be opened, and the spare ones, by raising the soft limit if it
/// must. Throws rpc_error resource_exhausted with both numbers.
inline void need_descriptors(std::size_t more, const std::string& whose) {
  const std::size_t needed = open_descriptors() + more + spare_descriptors;
  ::rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max >= needed) {
    limit.rlim_cur = needed;
    if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  }
  throw rpc_error(errc::resource_exhausted,
                  whose + " needs about " + std::to_string(needed) +
                      " open files, and RLIMIT_NOFILE (ulimit -n) allows " +
                      std::to_string(limit.rlim_max));
}

/// Of a worker's contexts, its own and one for each I/O thread or the helper, and what wakes that.
[[nodiscard]] inline std::size_t descriptors_of_contexts(std::optional<unsigned> io_threads) {
  return 3 * (1 + std::max<std::size_t>(1, io_threads.value_or(1))) + 2;
}

/// Of a worker: its contexts, its listening ends, the store, and a link to each of the others with
/// another one for a moment while both sides connect.
[[nodiscard]] inline std::size_t descriptors_of_worker(std::uint32_t rank, std::uint32_t size,
                                                       std::optional<unsigned> io_threads) {
  const std::size_t own = descriptors_of_contexts(io_threads) + 2;
  if (size == 1) return own;
  const std::size_t store = rank == 0 ? std::size_t{size} + 2 : 2;
  return own + store + (size - 1);
}

}  // namespace weft::engine
