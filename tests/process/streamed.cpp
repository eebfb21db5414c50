// SPDX-License-Identifier: BSL-1.0
// Training from processes that stream batches.
#include <doctest/doctest.h>

#include <core/temporary_folder.hpp>
#include <process/child.hpp>
#include <string>
#include <utility>
#include <vector>

namespace streamed_training {

using weft::testing::child;
using folder = weft::testing::temporary_folder;

/// PLplot's libraries leak at the end, which LeakSanitizer would make a failure.
const std::vector<std::pair<std::string, std::string>> with_plplot{{"LSAN_OPTIONS", "exitcode=0"}};

std::string trained(const folder& in, const std::vector<std::string>& more) {
  std::vector<std::string> line{
      WEFT_EXAMPLES "/train_digits", "--loaders", "2", "--epochs", "4", "--out",
      (in.root / "out").string()};
  line.insert(line.end(), more.begin(), more.end());
  child run(line, with_plplot);
  CHECK(run.wait() == 0);
  return run.output();
}

TEST_CASE("streamed: every row is trained on once in each epoch, also if a loader is killed") {
  const folder in;
  const std::string once = "every row was trained on exactly once in each of 4 epochs: 6000 rows";
  CHECK(trained(in, {}).find(once + "\n") != std::string::npos);
  const std::string said = trained(in, {"--kill-loader", "1"});
  CHECK(said.find(once + "; ") != std::string::npos);
  CHECK(said.find(" batches of a lost loader were read by others") != std::string::npos);
}

TEST_CASE("streamed: the only loader cannot be killed") {
  child run({WEFT_EXAMPLES "/train_digits", "--loaders", "1", "--kill-loader", "1"}, with_plplot);
  CHECK(run.wait() == 2);
  CHECK(run.said("--kill-loader needs another loader"));
}

}  // namespace streamed_training
