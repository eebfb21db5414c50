// SPDX-License-Identifier: BSL-1.0
// Programs that are killed at any moment, and go on from their files.
#include <weft/tensordict/files.hpp>
#include <weft/tensordict/ops.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <core/temporary_folder.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <process/child.hpp>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <signal.h>

namespace resumed_programs {

namespace fs = std::filesystem;
using weft::testing::child;
using weft::testing::eventually;

using folder = weft::testing::temporary_folder;

/// PLplot's libraries leak at the end, which LeakSanitizer would make a failure.
const std::vector<std::pair<std::string, std::string>> with_plplot{{"LSAN_OPTIONS", "exitcode=0"}};

/// All of its processes, at once.
void kill_all(child& run) {
  ::kill(-run.pid(), SIGKILL);
  CHECK(run.wait() == 128 + SIGKILL);
  CHECK(eventually([&] { return ::kill(-run.pid(), 0) != 0; }));
}

std::vector<std::string> training(const folder& in, const std::string& file, int trainers,
                                  int epochs) {
  return {WEFT_EXAMPLES "/train_digits",
          "--trainers",
          std::to_string(trainers),
          "--epochs",
          std::to_string(epochs),
          "--checkpoint",
          (in.root / file).string(),
          "--resume",
          "--out",
          (in.root / "out").string()};
}
/// Killed so often, each time an epoch or less after it began; then to its end.
std::string killed_training(const folder& in, int trainers, int epochs, int times,
                            std::mt19937& random) {
  for (int i = 0; i < times; ++i) {
    child run(training(in, "killed.td", trainers, epochs), with_plplot);
    if (i % 3 > 0) run.read_until("[all] epoch ");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 250'000));
    kill_all(run);
  }
  child last(training(in, "killed.td", trainers, epochs), with_plplot);
  CHECK(last.wait() == 0);
  return last.output();
}

TEST_CASE("resumed: a training that was killed ten times has the weights of one that was not") {
  const folder in;
  std::mt19937 random(1);
  constexpr int epochs = 12;
  child whole(training(in, "whole.td", 1, epochs), with_plplot);
  REQUIRE(whole.wait() == 0);
  const std::string said = killed_training(in, 1, epochs, 10, random);
  CHECK(whole.last_line_from("test accuracy") ==
        said.substr(said.rfind("test accuracy"), whole.last_line_from("test accuracy").size()));
  const weft::tensordict a = weft::from_consolidated(in.root / "whole.td");
  const weft::tensordict b = weft::from_consolidated(in.root / "killed.td");
  CHECK(a.data("epoch").as_int() == epochs);
  CHECK(b.data("epoch").as_int() == epochs);
  CHECK(b.dict("records").size() == epochs);
  for (const char* part : {"encoder", "heads", "optimizers"}) {
    CHECK_FALSE(a.dict(part).is_empty());
    CHECK(weft::all(a.dict(part) == b.dict(part)));
  }
  // Another run's file is refused, and stays.
  child other(training(in, "killed.td", 2, epochs), with_plplot);
  CHECK(other.wait() == 1);
  CHECK(other.said("is of a run with other --trainers, --batch, --lr or --seed"));
  CHECK(
      weft::all(b.dict("encoder") ==
                weft::tensordict(weft::from_consolidated(in.root / "killed.td")).dict("encoder")));
}

TEST_CASE("resumed: with two trainers it reaches the accuracy of a run that was not killed") {
  const folder in;
  std::mt19937 random(2);
  child whole(training(in, "whole.td", 2, 10), with_plplot);
  REQUIRE(whole.wait() == 0);
  const std::string said = killed_training(in, 2, 10, 4, random);
  const std::string at_end = "test accuracy ";
  const double wanted = std::stod(whole.last_line_from(at_end).substr(at_end.size()));
  const double got = std::stod(said.substr(said.rfind(at_end) + at_end.size()));
  CHECK(wanted > 0.9);
  CHECK(got > wanted - 0.04);
}

TEST_CASE("resumed: every step that was acknowledged is in the files of the replay buffer") {
  const folder in;
  const std::string files = (in.root / "replay").string();
  const std::vector<std::string> command{WEFT_EXAMPLES "/replay_files", "--folder", files,
                                         "--steps", "6000"};
  std::mt19937 random(3);
  std::map<std::int64_t, std::int64_t> safe;
  bool full = false;
  for (int i = 0; i <= 10; ++i) {
    child run(command);
    if (i < 10) {
      if (i % 3 > 0 && !full) run.read_until(" steps are safe");
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 150'000));
      ::kill(-run.pid(), SIGKILL);  // it may have ended
      static_cast<void>(run.wait());
      CHECK(eventually([&] { return ::kill(-run.pid(), 0) != 0; }));
    } else {
      CHECK(run.wait() == 0);
      CHECK(run.said("the buffer has 18000 steps of 3 actors, and all are right"));
    }
    const std::regex line(R"(actor (\d+): (\d+) steps are safe\n)");
    const std::string& text = run.output();
    for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
      std::int64_t& mine = safe[std::stoll((*at)[1])];
      mine = std::max<std::int64_t>(mine, std::stoll((*at)[2]));
    }
    if (!fs::exists(files + "/meta.json")) {
      CHECK(safe.empty());
      continue;
    }
    const weft::tensordict there = weft::load_memmap(files);
    full = there.tensor("filled").ge(5000).any().item<bool>();
    for (const auto& [actor, steps] : safe) {
      CHECK(there.tensor("filled")[actor - 1].item<std::int64_t>() >= steps);
    }
  }
  CHECK(safe.size() == 3);
}

}  // namespace resumed_programs
