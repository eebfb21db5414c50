// SPDX-License-Identifier: BSL-1.0
// A program for simulated worlds of what stands around plain calls: several results at once,
// channels, the compute pool, time limits, callbacks, one object per worker, references where values
// are expected, objects that serve one call at a time, names, repeated calls, work left behind.
#pragma once

#include <weft/rpc/retry.hpp>
#include <weft/rref/callback.hpp>
#include <weft/rref/exclusive.hpp>
#include <weft/rref/published.hpp>
#include <weft/rref/sharded.hpp>

#include <cstdint>
#include <sim/calls.hpp>

namespace weft::testing {

/// Calls it so often, one after another, with 0, 1, ...
asio::awaitable<std::uint64_t> calls_back(worker& me, std::uint64_t id, std::uint64_t times,
                                          callback<std::uint64_t(std::uint64_t)> what);
/// One of several, which counts how often it was asked.
class counting {
 public:
  explicit counting(std::uint64_t first) : value_(first) {}
  asio::awaitable<std::uint64_t> next(worker& me);
  std::uint64_t look() const { return value_; }

 private:
  std::uint64_t value_;
};

/// May be repeated.
asio::awaitable<std::uint64_t> takes_time_again(worker& me, std::uint64_t id);
/// A number that others get by reference; some are never made.
asio::awaitable<std::uint64_t> number_there(worker& me, std::uint64_t number, bool fails);
/// With one that is given so, and what it must be.
asio::awaitable<std::uint64_t> takes_number(worker& me, std::uint64_t id, std::uint64_t number,
                                            std::uint64_t expected);
std::uint64_t takes_numbers(worker& me, std::uint64_t id, std::uint64_t a, std::uint64_t b);
/// Sees whether two calls are in it at once; what it has counted.
class lonely {
 public:
  asio::awaitable<std::uint64_t> count_slowly(worker& me, std::uint64_t id);
  std::uint64_t count(worker& me, std::uint64_t id);

 private:
  void enter(worker& me, std::uint64_t id);
  bool inside_ = false;
};

/// What each worker's main does.
asio::awaitable<void> some_verbs(worker& me, std::uint32_t steps);

}  // namespace weft::testing

template <>
inline constexpr bool weft::idempotent<&weft::testing::takes_time_again> = true;
