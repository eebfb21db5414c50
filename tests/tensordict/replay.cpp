// SPDX-License-Identifier: BSL-1.0
// Random tensordicts and operations, as Python's tensordict answers them (differential.py): a
// thousand that are kept here, or those of the file that WEFT_TENSORDICT_CASES names.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tensordict/replay.hpp>

namespace tensordict_replay {

TEST_CASE("tensordict replay: every leaf, shape, name and refusal is that of Python") {
  const char* const fresh = std::getenv("WEFT_TENSORDICT_CASES");
  std::ifstream file(fresh ? fresh : WEFT_TENSORDICT_KEPT);
  REQUIRE(file);
  std::size_t cases = 0;
  std::size_t differences = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    for (const std::string& d : tensordicts::differences(tensordicts::json::parse(line))) {
      ++differences;
      if (differences <= 20) MESSAGE(d);
    }
  }
  MESSAGE(cases << " cases, " << differences << " differences");
  CHECK(cases >= (fresh ? 1 : 1000));
  CHECK(differences == 0);
}

}  // namespace tensordict_replay
