// SPDX-License-Identifier: BSL-1.0
// A program for simulated worlds of what users do beside plain calls: functions that leave
// something behind or switch cancellation off, posts with a deadline, arguments that cannot be
// written, objects that are long in making, futures that are stopped before they begin.
#pragma once

#include <cstdint>
#include <sim/references.hpp>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <vector>

namespace weft::testing {

/// An argument that cannot be written.
struct unwritable {
  static constexpr std::string_view weft_structure = "weft::testing::unwritable 1";
  friend void weft_encode(writer&, const unwritable&) {
    throw std::runtime_error("it cannot be written");
  }
  friend unwritable weft_decode(reader&, std::type_identity<unwritable>) { return {}; }
};

/// Leaves a coroutine behind that runs on its executor.
asio::awaitable<std::uint64_t> leaves_behind(worker& me, std::uint64_t id);
/// Switches cancellation off for the coroutine that serves it.
asio::awaitable<std::uint64_t> switches_off(worker& me, std::uint64_t id);
/// Throws when it has begun.
asio::awaitable<std::uint64_t> throws_later(worker& me, std::uint64_t id);
/// Until the run ends.
asio::awaitable<void> stays(worker& me, std::uint64_t id);
/// Until its deadline, which ends it.
asio::awaitable<void> until_deadline(worker& me, std::uint64_t id);
/// Keeps its arguments for a while.
asio::awaitable<std::uint64_t> keeps_much(worker& me, std::uint64_t id,
                                          const std::vector<std::uint64_t>& in);
thing make_of(std::uint64_t number, unwritable what);
asio::awaitable<thing> make_at_length(worker& me, std::uint64_t number);

/// What each worker's main does. `crowded`: only requests that are too much together.
asio::awaitable<void> some_habits(worker& me, std::uint32_t steps, bool crowded);

}  // namespace weft::testing
