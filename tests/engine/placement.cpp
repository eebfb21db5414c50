// SPDX-License-Identifier: BSL-1.0
#include "environment.hpp"
#include <weft/engine/launch/placement.hpp>
#include <weft/rpc/options.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <unistd.h>

namespace placements {

std::optional<weft::placement> under(const std::map<std::string, std::string>& set) {
  const weft::testing::environment guard({"RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_LOCAL_SIZE",
                                          "PMI_RANK",
                                          "PMI_SIZE",
                                          "MPI_LOCALNRANKS",
                                          "SLURM_PROCID",
                                          "SLURM_NTASKS",
                                          "SLURM_NTASKS_PER_NODE",
                                          "SLURM_STEP_ID",
                                          "SLURM_STEP_NUM_TASKS",
                                          "SLURM_STEP_NUM_NODES",
                                          "SLURM_NNODES",
                                          "SLURM_JOB_NUM_NODES",
                                          "SLURM_HET_SIZE",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "WEFT_LAUNCHED"},
                                         set);
  return weft::placement_from_environment();
}

TEST_CASE("placement: none without a launcher") { CHECK_FALSE(under({})); }

TEST_CASE("placement: every launcher's variables") {
  const auto torchrun = under(
      {{"RANK", "2"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "host"}});
  REQUIRE(torchrun);
  CHECK(torchrun->rank == 2);
  CHECK(torchrun->size == 8);
  CHECK(torchrun->on_this_host == 4);
  CHECK(torchrun->launcher == "torchrun");
  CHECK_FALSE(torchrun->one_host());
  const auto open_mpi = under({{"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  REQUIRE(open_mpi);
  CHECK(open_mpi->rank == 1);
  CHECK(open_mpi->one_host());
  const auto mpich = under({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  REQUIRE(mpich);
  CHECK(mpich->rank == 3);
  CHECK(mpich->one_host());  // nothing says that there is another
  const auto slurm = under({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}});
  REQUIRE(slurm);
  CHECK(slurm->launcher == "srun");
}

TEST_CASE("placement: what launch_local set for a worker is not for those that it starts") {
  const std::string me = std::to_string(::getpid());
  std::map<std::string, std::string> set = {{"RANK", "1"},
                                            {"WORLD_SIZE", "2"},
                                            {"LOCAL_WORLD_SIZE", "2"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", "4711"},
                                            {"WEFT_LAUNCHED", me + ":4711:0"}};
  CHECK(under(set)->rank == 1);
  set["WEFT_LAUNCHED"] = "1:4711:0";
  CHECK_FALSE(under(set));
  set["WEFT_LAUNCHED"] = "4294967295:4711:0";  // that has ended
  CHECK_FALSE(under(set));
  // mpirun in a worker: it meets the others in a file.
  set["OMPI_COMM_WORLD_RANK"] = "1";
  set["OMPI_COMM_WORLD_SIZE"] = "3";
  const auto inner = under(set);
  REQUIRE(inner);
  CHECK(inner->size == 3);
  CHECK(inner->one_host());
  set["MASTER_PORT"] = "4712";  // torchrun in a worker
  CHECK(under(set)->size == 2);
  for (const char* nonsense : {"", "x", "1", "1:4711", "1:4711:0:0", "1:4711:0 ", "-1:4711:0"}) {
    set["WEFT_LAUNCHED"] = nonsense;
    set["MASTER_PORT"] = "4711";
    CHECK(under(set)->size == 2);
  }
}

TEST_CASE("placement: torchrun's variables come first") {
  const auto both = under({{"RANK", "1"},
                           {"WORLD_SIZE", "3"},
                           {"OMPI_COMM_WORLD_RANK", "0"},
                           {"OMPI_COMM_WORLD_SIZE", "9"}});
  REQUIRE(both);
  CHECK(both->size == 3);
}

TEST_CASE("placement: half of torchrun's or Open MPI's variables is refused by name") {
  const std::map<std::string, std::string> halves[] = {
      {{"RANK", "1"}},
      {{"WORLD_SIZE", "1"}},
      {{"RANK", ""}, {"WORLD_SIZE", "2"}},
      // In a batch of one task of Slurm's, which does not say that this worker is alone.
      {{"WORLD_SIZE", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}},
      {{"OMPI_COMM_WORLD_RANK", "1"}},
      {{"OMPI_COMM_WORLD_SIZE", "2"}}};
  for (const auto& half : halves) {
    try {
      static_cast<void>(under(half));
      FAIL("nothing was thrown");
    } catch (const weft::rpc_error& e) {
      CHECK(e.error() == weft::errc::invalid_argument);
      for (const char* word : {"RANK", "SIZE", "both say"}) {
        CHECK(std::string(e.what()).find(word) != std::string::npos);
      }
    }
  }
}

TEST_CASE("placement: half of another launcher's variables are none, and a whole one counts") {
  CHECK_FALSE(under({{"SLURM_NTASKS", "4"}}));  // a shell of salloc's
  CHECK_FALSE(under({{"SLURM_PROCID", "0"}}));  // a script of sbatch's
  CHECK_FALSE(under({{"PMI_RANK", "1"}}));
  const auto one = under({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "7"}});
  REQUIRE(one);
  CHECK(one->size == 1);
  const auto whole =
      under({{"RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}});
  REQUIRE(whole);
  CHECK(whole->rank == 2);
}

TEST_CASE("placement: what Slurm starts without srun is no task of a step") {
  const std::map<std::string, std::string> script = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "3"}, {"SLURM_JOB_NUM_NODES", "2"}};
  CHECK_FALSE(under(script));
  // A shell that salloc has started by a step of its own, and a batch script that has a number.
  for (const char* own : {"4294967290", "4294967291"}) {
    auto with_number = script;
    with_number["SLURM_STEP_ID"] = own;
    CHECK_FALSE(under(with_number));
  }
}

TEST_CASE("placement: of Slurm's numbers those of the step count") {
  std::map<std::string, std::string> step = {
      {"SLURM_PROCID", "1"},         {"SLURM_STEP_ID", "0"},       {"SLURM_NTASKS", "8"},
      {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_NTASKS_PER_NODE", "4"}};
  const auto placed = [&] { return under(step).value(); };
  CHECK(placed().size == 2);
  CHECK_FALSE(placed().one_host());
  CHECK(placed().hosts_known);
  step["SLURM_STEP_NUM_NODES"] = "1";
  CHECK(placed().one_host());
  step["MASTER_ADDR"] = "node0";
  CHECK(placed().one_host());
  step["SLURM_STEP_NUM_NODES"] = "2";
  CHECK(placed().on_this_host == 1);
  step["SLURM_STEP_NUM_TASKS"] = "6";
  CHECK(placed().on_this_host == 4);
  // Of a heterogeneous job they are of a part.
  step["SLURM_HET_SIZE"] = "2";
  CHECK(placed().size == 8);
  step["SLURM_PROCID"] = "9";
  CHECK_THROWS_WITH(static_cast<void>(under(step)), doctest::Contains("SLURM_PROCID=9"));
}

TEST_CASE("placement: several nodes of a step are several hosts, whoever says the rank") {
  std::map<std::string, std::string> step = {
      {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_NNODES", "2"}};
  using names = std::pair<const char*, const char*>;
  for (const auto& [rank, size] :
       {names{"SLURM_PROCID", "SLURM_NTASKS"}, {"PMI_RANK", "PMI_SIZE"}, {"RANK", "WORLD_SIZE"}}) {
    CAPTURE(rank);
    auto set = step;
    set[rank] = "1";
    set[size] = "2";
    const auto place = under(set);
    REQUIRE(place);
    CHECK_FALSE(place->one_host());
    CHECK(place->hosts_known);
  }
  // Other processes than the step's tasks are where whoever started them says.
  auto others = step;
  others["RANK"] = "1";
  others["WORLD_SIZE"] = "3";
  CHECK(under(others).value().one_host());
  others["LOCAL_WORLD_SIZE"] = "1";
  CHECK_FALSE(under(others).value().one_host());
}

TEST_CASE("placement: nonsense names its variable") {
  for (const char* bad : {"x", "1x", "-1", " 1", "4294967296", "1.5"}) {
    CAPTURE(bad);
    try {
      static_cast<void>(under({{"RANK", bad}, {"WORLD_SIZE", "2"}}));
      FAIL("nothing was thrown");
    } catch (const weft::rpc_error& e) {
      CHECK(e.error() == weft::errc::invalid_argument);
      CHECK(std::string(e.what()).find("RANK='" + std::string(bad) + "'") != std::string::npos);
    }
  }
  try {
    static_cast<void>(under({{"RANK", "2"}, {"WORLD_SIZE", "2"}}));
    FAIL("nothing was thrown");
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == weft::errc::invalid_argument);
    CHECK(std::string(e.what()).find("WORLD_SIZE=2") != std::string::npos);
  }
}

TEST_CASE("options: a text per worker is a value, a function of rank and size, or the default") {
  const weft::per_worker_text none;
  CHECK(none(1, 2, "otherwise") == "otherwise");
  const weft::per_worker_text value("ps");
  CHECK(value(1, 2, "otherwise") == "ps");
  const weft::per_worker_text chosen([](std::uint32_t rank, std::uint32_t size) {
    return "w" + std::to_string(rank) + "/" + std::to_string(size);
  });
  CHECK(chosen(1, 2, "otherwise") == "w1/2");
  const weft::options defaults;
  CHECK(defaults.call_deadline == std::chrono::seconds(60));
  CHECK(defaults.outbox_frames == 64 * 1024);
  CHECK(defaults.outbox_bytes == std::uint64_t{256} << 20);
}

}  // namespace placements
