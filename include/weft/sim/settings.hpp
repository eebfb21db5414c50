// SPDX-License-Identifier: BSL-1.0
// What a simulated world is like, and what may go wrong in it.
#pragma once

#include <weft/core/time.hpp>
#include <weft/rpc/options.hpp>
#include <weft/sim/network.hpp>

#include <chrono>
#include <cstdint>

namespace weft::sim {

/// What may go wrong in a world, and how often; the defaults are a calm one. Faults come only until
/// `faults_end`, so that one can see whether the world recovers.
struct settings {
  std::uint32_t workers = 3;
  options worker{};            ///< of each; name and role are functions of the rank
  bool whole_frames = true;    ///< false: bytes, which arrive in pieces
  bool writes_at_once = true;  ///< of bytes; false: on the I/O thread, as a cipher's are
  wire_settings wires{};
  std::int32_t clock_ppm = 0;                            ///< clocks are up to so much fast or slow
  duration handler_time = std::chrono::microseconds(1);  ///< what running a handler takes
  /// Take a hundred times as long, one in four ten thousand times: their thread does nothing else.
  std::uint32_t slow_handlers_per_1024 = 0;
  /// In so many a request for memory fails, or several in a row, of those that fail one call each:
  /// for a message or a value of more than 1 KiB, and for a tensor that arrives.
  std::uint32_t lacks_memory_per_1024 = 0;
  duration mean_between_faults{};  ///< 0: no faults
  duration faults_end = std::chrono::seconds(10);
  bool resets = false, cuts = false, pauses = false, crashes = false;
  duration longest_cut = std::chrono::seconds(3);
  duration longest_pause = std::chrono::seconds(3);
  bool keeps_story = false;    ///< what happened, in words; the hash is made in any case
  bool tells_arrivals = true;  ///< in it, too: each frame, or piece of bytes, that arrives
};

}  // namespace weft::sim
