// SPDX-License-Identifier: BSL-1.0
// Some of the worlds of `./dev sim --program gradients`.
#include <doctest/doctest.h>

#include <ATen/Parallel.h>

#include <core/run_all.hpp>
#include <cstdint>
#include <map>
#include <sim/play.hpp>
#include <string>

namespace sim_learned {

using weft::testing::name_of;
using weft::testing::play;
using weft::testing::played;
using weft::testing::profile;
using weft::testing::program;
using weft::testing::rounds;

std::map<std::string, std::uint64_t> check_seeds(profile how) {
  at::set_num_threads(1);
  std::map<std::string, std::uint64_t> counted;
  for (std::uint64_t seed = 0; seed < rounds(40, 300); ++seed) {
    const played p = play({.seed = seed, .how = how, .what = program::gradients});
    INFO("./dev sim --seed ", seed, " --profile ", name_of(how), " --program gradients");
    for (const std::string& b : p.broken) FAIL_CHECK(b);
    for (const auto& [what, number] : p.counted) counted[what] += number;
  }
  return counted;
}

TEST_CASE("learned worlds: gradients and steps are those of one process, on every schedule") {
  auto counted = check_seeds(profile::calm);
  CHECK(counted["graphs"] > rounds(60, 500));
  CHECK(counted["passes"] > rounds(60, 500));
  CHECK(counted["failed passes"] > rounds(2, 20));
  CHECK(counted["steps of optimizers"] > rounds(10, 100));
}

TEST_CASE(
    "learned worlds: whatever breaks, gradients are right or not there, and nothing is left") {
  auto counted = check_seeds(profile::brutal);
  CHECK(counted["passes"] > rounds(40, 300));
  CHECK(counted["failed passes"] > rounds(2, 20));
}

TEST_CASE("learned worlds: a seed is a world, and its record is the same one") {
  at::set_num_threads(1);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const auto how = seed % 2 == 0 ? profile::calm : profile::brutal;
    const played once = play({.seed = seed, .how = how, .what = program::gradients});
    const played again =
        play({.seed = seed, .how = how, .what = program::gradients, .story = true});
    CHECK(once.hash == again.hash);
    CHECK(once.record == again.record);
    CHECK(
        play({.seed = seed, .how = how, .what = program::gradients, .record = &once.record}).hash ==
        once.hash);
  }
}

}  // namespace sim_learned
