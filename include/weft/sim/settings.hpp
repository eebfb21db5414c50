// SPDX-License-Identifier: BSL-1.0
// The settings of a simulated world, and the faults that may come in it.
#pragma once

#include <weft/core/time.hpp>
#include <weft/rpc/options.hpp>
#include <weft/sim/network.hpp>

#include <chrono>
#include <cstdint>

namespace weft::sim {

/// Which faults come in a world, and how often. With the defaults nothing goes wrong. Faults come
/// only until `faults_end`, so that you can see whether the world recovers.
struct settings {
  std::uint32_t workers = 3;
  options worker{};            ///< of each worker; name and role are functions of the rank
  bool whole_frames = true;    ///< false: bytes travel, and frames arrive in pieces
  bool writes_at_once = true;  ///< only for bytes; false: the I/O thread writes, as for a cipher
  wire_settings wires{};
  std::int32_t clock_ppm = 0;                            ///< clocks are up to so much fast or slow
  duration handler_time = std::chrono::microseconds(1);  ///< how long a handler takes
  /// So many of 1024 handlers take 100 times as long, a quarter of them 10,000 times. Meanwhile
  /// their thread does nothing else.
  std::uint32_t slow_handlers_per_1024 = 0;
  /// In so many of 1024 handlers a request for memory fails, or several in a row. Each fails one
  /// call or one gradient pass. Only these requests fail: for a message or value of more than
  /// 1 KiB, and for an arriving tensor.
  std::uint32_t lacks_memory_per_1024 = 0;
  duration mean_between_faults{};  ///< 0: no faults
  duration faults_end = std::chrono::seconds(10);
  bool resets = false, cuts = false, pauses = false, crashes = false;
  duration longest_cut = std::chrono::seconds(3);
  duration longest_pause = std::chrono::seconds(3);
  bool keeps_story = false;    ///< writes down what happens; the hash is made in any case
  bool tells_arrivals = true;  ///< the story also lists each arriving frame, or piece of bytes
};

}  // namespace weft::sim
