// SPDX-License-Identifier: BSL-1.0
// For whom the variables are that launch_local sets. Processes that a worker starts inherit them,
// and are no workers of its run.
//
//   WEFT_LAUNCHED    <process>:<MASTER_PORT>:<depth>   the worker; how many launches are around it
//   WEFT_REPORT_FD   <fd>:<device>:<inode>             the pipe for run_report.hpp
//   WEFT_STORE_FD    <fd>:<device>:<inode>             rank 0: the socket to serve the store on
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weft::engine {

[[nodiscard]] inline std::string whole_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A variable that is three numbers with colons between them; nothing if it is anything else.
[[nodiscard]] inline std::optional<std::array<std::uint64_t, 3>> three_numbers(const char* name) {
  const char* const text = std::getenv(name);  // NOLINT: before any thread changes it
  if (!text) return std::nullopt;
  std::array<std::uint64_t, 3> out{};
  const char* at = text;
  const char* const end = text + std::string_view(text).size();
  for (std::size_t n = 0; n < out.size(); ++n) {
    if (n > 0 && (at == end || *at++ != ':')) return std::nullopt;
    const auto [stop, problem] = std::from_chars(at, end, out[n]);
    if (problem != std::errc()) return std::nullopt;
    at = stop;
  }
  return at == end ? std::optional(out) : std::nullopt;
}

struct launch_mark {
  std::uint64_t process;
  std::uint64_t port;
  std::uint64_t depth;

  static std::optional<launch_mark> read() {
    const auto n = three_numbers("WEFT_LAUNCHED");
    return n ? std::optional(launch_mark{(*n)[0], (*n)[1], (*n)[2]}) : std::nullopt;
  }
  /// Whether this process is that worker, or was forked from it without an exec: then the kernel
  /// gave both one and the same auxiliary vector, with addresses that it had drawn.
  [[nodiscard]] bool ours() const {
    if (process == static_cast<std::uint64_t>(::getpid())) return true;
    const std::string vector = whole_file("/proc/self/auxv");
    return !vector.empty() && vector == whole_file("/proc/" + std::to_string(process) + "/auxv");
  }
};

/// Whether torchrun's variables are those of a worker that started this process. If MASTER_PORT is
/// another one, another launcher has set them anew.
[[nodiscard]] inline bool launched_for_another() {
  const auto mark = launch_mark::read();
  const char* const port = std::getenv("MASTER_PORT");  // NOLINT: before any thread changes it
  return mark && port && port == std::to_string(mark->port) && !mark->ours();
}

/// How many launches are around one that this process begins. Throws rpc_error where it would go on
/// for ever: a worker that launches, or one of a program that no longer is what launch_local
/// started when it comes to `run`, but a child of it, as would be each of its workers' children.
[[nodiscard]] inline std::uint64_t depth_of_launch() {
  const auto outer = launch_mark::read();
  if (!outer) return 0;
  if (outer->ours()) {
    throw rpc_error(errc::invalid_argument,
                    "launch_local was called in a worker that launch_local started: call it only "
                    "if placement_from_environment() returns nothing");
  }
  if (outer->depth > 0) {
    throw rpc_error(errc::invalid_argument,
                    "a worker of a run within a run has started this program, which would launch "
                    "workers again: call `run` in the process that launch_local started, or, if "
                    "this is meant, start the program without WEFT_LAUNCHED in its environment");
  }
  return outer->depth + 1;
}

[[nodiscard]] inline std::string described(int fd) {
  struct ::stat is{};
  ::fstat(fd, &is);
  return std::to_string(fd) + ":" + std::to_string(is.st_dev) + ":" + std::to_string(is.st_ino);
}

/// The descriptor that launch_local gave to this worker, from now on not for processes that it
/// starts; nothing if the variable is another process's, or the number another file's by now.
[[nodiscard]] inline std::optional<int> given_descriptor(const char* name) {
  const auto given = three_numbers(name);
  if (!given) return std::nullopt;
  const int fd = static_cast<int>((*given)[0]);
  struct ::stat is{};
  if (::fstat(fd, &is) != 0 || is.st_dev != (*given)[1] || is.st_ino != (*given)[2]) {
    return std::nullopt;
  }
  const auto mark = launch_mark::read();
  if (!mark || !mark->ours()) return std::nullopt;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

}  // namespace weft::engine
