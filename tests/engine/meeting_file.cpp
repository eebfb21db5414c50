// SPDX-License-Identifier: BSL-1.0
#include "environment.hpp"
#include <weft/engine/rendezvous/meeting_file.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <core/temporary_folder.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

namespace meeting_files {

using namespace std::chrono_literals;
using weft::errc;

/// A folder for one test, that does not exist yet.
struct place : weft::testing::temporary_folder {
  const std::filesystem::path folder = root / "meetings";
};

struct result {
  std::vector<std::string> lines;
  weft::error failure;
};
std::future<result> come(const place& p, const std::string& key, std::uint32_t rank,
                         std::uint32_t size, const std::string& line,
                         weft::duration deadline = 60s) {
  return std::async(std::launch::async, [=, folder = p.folder]() -> result {
    try {
      return {weft::engine::meet_in_file(folder, key, rank, size, line,
                                         weft::engine::countdown(deadline)),
              {}};
    } catch (const weft::rpc_error& e) {
      return {{}, e.error()};
    }
  });
}

TEST_CASE("meeting file: everybody learns what everybody said, and nothing is left") {
  const place p;
  std::vector<std::future<result>> all;
  for (std::uint32_t r = 0; r < 5; ++r) {
    all.push_back(come(p, "run", r, 5, "{\"name\": \"w" + std::to_string(r) + "\"}"));
  }
  for (auto& f : all) {
    const result r = f.get();
    CHECK_FALSE(r.failure);
    REQUIRE(r.lines.size() == 5);
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(r.lines[i] == "{\"name\": \"w" + std::to_string(i) + "\"}");
    }
  }
  CHECK_FALSE(std::filesystem::exists(p.folder));
}

TEST_CASE("meeting file: only its user may read it, and it is gone once all have come") {
  const place p;
  auto first = come(p, "run", 0, 2, "first");
  const auto until = std::chrono::steady_clock::now() + 60s;
  const auto file = p.folder / "run.0";
  while (!std::filesystem::exists(file) && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  struct ::stat is{};
  REQUIRE(::stat(file.c_str(), &is) == 0);
  CHECK((is.st_mode & 0777) == 0600);
  REQUIRE(::stat(p.folder.c_str(), &is) == 0);
  CHECK((is.st_mode & 0777) == 0700);
  CHECK_FALSE(come(p, "run", 1, 2, "second").get().failure);
  CHECK_FALSE(first.get().failure);
  CHECK_FALSE(std::filesystem::exists(p.folder));
}

TEST_CASE("meeting file: who is missing at the deadline is named to all, also to the patient") {
  const place p;
  auto patient = come(p, "run", 0, 4, "a", 60s);
  auto hasty = come(p, "run", 2, 4, "b", 300ms);
  for (auto* f : {&patient, &hasty}) {
    const result r = f->get();
    CHECK(r.failure == errc::rendezvous_failed);
    CHECK(r.failure.message().find("after 300 ms") != std::string::npos);
    CHECK(r.failure.message().find("missing: ") != std::string::npos);
    CHECK(r.failure.message().find("1, 3") != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(p.folder));
}

TEST_CASE("meeting file: what dead runs left is no run, and is removed") {
  const place p;
  std::filesystem::create_directory(p.folder);
  ::chmod(p.folder.c_str(), 0700);
  for (const char* name : {"run.0", "run.1", "other.0"}) {
    std::ofstream(p.folder / name) << "0 an old line\n1 another\n";
  }
  auto a = come(p, "run", 0, 2, "a");
  auto b = come(p, "run", 1, 2, "b");
  for (auto* f : {&a, &b}) {
    const result r = f->get();
    CHECK_FALSE(r.failure);
    CHECK(r.lines == std::vector<std::string>{"a", "b"});
  }
  CHECK_FALSE(std::filesystem::exists(p.folder));
}

TEST_CASE("meeting file: one who came and died ends the meeting at once, for all, by name") {
  const place p;
  const weft::engine::countdown patience(60s);
  std::optional<weft::engine::meeting_file> seat;
  seat.emplace(weft::engine::find_seat(p.folder, "run", 1, 4, "b", patience));
  auto waiting = come(p, "run", 0, 4, "a");
  auto other = come(p, "run", 2, 4, "c");
  const auto there = [&] { return seat->read(4).lines[0] && seat->read(4).lines[2]; };
  // bounded: by `patience`
  while (!there() && !patience.over()) std::this_thread::yield();
  REQUIRE(there());
  seat.reset();
  for (auto* f : {&waiting, &other}) {
    const result r = f->get();
    CHECK(r.failure == errc::rendezvous_failed);
    CHECK(r.failure.message().find("rank 1 died while the workers met") != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(p.folder));
}

TEST_CASE("meeting file: two runs of one key at once stay apart, each of them whole") {
  for (int round = 0; round < 20; ++round) {
    const place p;
    std::vector<std::pair<std::string, std::future<result>>> all;
    for (int run = 0; run < 3; ++run) {
      for (std::uint32_t r = 0; r < 3; ++r) {
        const std::string line = std::to_string(run) + "/" + std::to_string(r);
        all.emplace_back(line, come(p, "run", r, 3, line));
      }
    }
    std::map<std::vector<std::string>, std::set<std::string>> groups;
    for (auto& [line, f] : all) {
      const result r = f.get();
      CHECK_FALSE(r.failure);
      groups[r.lines].insert(line);
    }
    CHECK(groups.size() == 3);
    for (const auto& [lines, members] : groups) {
      CHECK(members == std::set<std::string>(lines.begin(), lines.end()));
    }
    CHECK_FALSE(std::filesystem::exists(p.folder));
  }
}

TEST_CASE("meeting file: other keys are other meetings") {
  const place p;
  auto a = come(p, "one", 0, 2, "a", 300ms);
  auto b = come(p, "two", 1, 2, "b", 300ms);
  CHECK(a.get().failure == errc::rendezvous_failed);
  CHECK(b.get().failure == errc::rendezvous_failed);
}

TEST_CASE("meeting file: a folder that others can write or read is refused") {
  const place p;
  std::filesystem::create_directory(p.folder);
  ::chmod(p.folder.c_str(), 0755);
  const auto open = come(p, "run", 0, 1, "a").get();
  CHECK(open.failure == errc::rendezvous_failed);
  CHECK(open.failure.message().find("other users may read or write") != std::string::npos);
  std::filesystem::remove(p.folder);
  std::filesystem::create_directory_symlink(p.root, p.folder);
  CHECK(come(p, "run", 0, 1, "a").get().failure == errc::rendezvous_failed);
  std::filesystem::remove(p.folder);
  std::ofstream(p.folder) << "a file";
  CHECK(come(p, "run", 0, 1, "a").get().failure == errc::rendezvous_failed);
}

std::string key_under(const std::map<std::string, std::string>& set, std::uint32_t size = 2,
                      const char* launcher = "srun") {
  const weft::testing::environment guard(
      {"WEFT_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID"}, set);
  return weft::engine::run_key({0, size, size, launcher}, weft::engine::run_id_of({}));
}

TEST_CASE("meeting file: a key for each job, step, parent and size") {
  const std::vector<std::string> different = {
      key_under({}),
      key_under({}, 3),
      key_under({}, 2, "torchrun"),
      key_under({{"SLURM_JOB_ID", "7"}}),
      key_under({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}}),
      key_under({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}}),
      key_under({{"SLURM_JOB_ID", "71"}, {"SLURM_STEP_ID", ""}}),
      key_under({{"PMIX_NAMESPACE", "prterun-host-1@1"}}),
      key_under({{"PMIX_NAMESPACE", "prterun-host-1@2"}}),
      key_under({{"PMIX_NAMESPACE", "prterun.host-1@2"}}),
      key_under({{"WEFT_RUN_ID", "7"}}),
      key_under({{"WEFT_RUN_ID", "../../etc/" + std::string(500, 'x')}}),
  };
  const std::set<std::string> all(different.begin(), different.end());
  CHECK(all.size() == different.size());
  for (const std::string& key : all) {
    CHECK(key.size() < 64);
    CHECK(key.find('/') == std::string::npos);
    CHECK(key.find('.') == std::string::npos);
  }
  CHECK(key_under({}) == key_under({}));
  CHECK(key_under({{"WEFT_RUN_ID", "7"}}) ==
        key_under({{"WEFT_RUN_ID", "7"}, {"SLURM_JOB_ID", "8"}}, 2, "torchrun"));
  const weft::testing::environment guard({"WEFT_RUN_ID"}, {{"WEFT_RUN_ID", "7"}});
  CHECK(weft::engine::run_id_of("the option's") == "the option's");
}

}  // namespace meeting_files
