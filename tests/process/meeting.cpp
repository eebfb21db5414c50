// SPDX-License-Identifier: BSL-1.0
// Workers that meet, as real processes that nobody but this test started; some never come, some are
// killed or stopped while they wait.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <core/temporary_folder.hpp>
#include <fstream>
#include <memory>
#include <process/child.hpp>
#include <process/store_at.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace meetings_of_processes {

using namespace std::chrono_literals;
using weft::testing::child;
using weft::testing::eventually;
using weft::testing::store_at;
using variables = std::vector<std::pair<std::string, std::string>>;

const std::string party = WEFT_TEST_PROGRAMS "/party";

/// For temporary files of one test's processes.
struct place : weft::testing::temporary_folder {
  /// Whether one of the files says that rank `r` is there.
  [[nodiscard]] bool waits(int r) const { return says(std::to_string(r) + " "); }
};

std::unique_ptr<child> start(const place& p, const std::string& deed, int rank, int size,
                             variables more = {}, const std::string& deadline = "60") {
  more.emplace_back("RANK", std::to_string(rank));
  more.emplace_back("WORLD_SIZE", std::to_string(size));
  more.emplace_back("LOCAL_WORLD_SIZE", std::to_string(size));
  more.emplace_back("TMPDIR", p.root.string());
  return std::make_unique<child>(
      std::vector<std::string>{party, deed, deadline}, more,
      std::vector<std::string>{"WEFT_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID",
                               "SLURM_STEP_ID", "TORCHELASTIC_USE_AGENT_STORE"});
}
/// A process of which only these variables say anything.
std::unique_ptr<child> start_alone(const std::string& deed, const variables& environment,
                                   const std::string& deadline = "60") {
  return std::make_unique<child>(
      std::vector<std::string>{party, deed, deadline}, environment,
      std::vector<std::string>{"WEFT_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID", "LOCAL_WORLD_SIZE"});
}
/// How long it took by its own clock, in ms.
std::int64_t took(const child& c) { return c.number_after("the run took "); }
/// A socket that listens on loopback, and its port.
struct listener {
  listener() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(fd, 16) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    port = std::to_string(ntohs(address.sin_port));
  }
  listener(const listener&) = delete;
  listener& operator=(const listener&) = delete;
  ~listener() { ::close(fd); }
  int fd;
  std::string port;
};

using children = std::vector<std::unique_ptr<child>>;

void check_well(children& run) {
  for (std::size_t r = 0; r < run.size(); ++r) {
    CHECK(run[r]->wait() == 0);
    INFO(run[r]->output());
    CHECK(run[r]->said("rank " + std::to_string(r) + " of " + std::to_string(run.size()) +
                       " greeted all"));
  }
}

TEST_CASE("meeting: nothing is left after a good run, and many runs of one parent are well") {
  const place p;
  for (int round = 0; round < 2; ++round) {
    children run;
    for (int r = 0; r < 2; ++r) run.push_back(start(p, "greet", r, 2));
    check_well(run);
    CHECK(p.empty());
  }
}

TEST_CASE("meeting: a TMPDIR that is no folder is named") {
  child run({party, "greet", "5"},
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TMPDIR", "/dev/null/nowhere"}}, {"WEFT_RUN_ID"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("TMPDIR='/dev/null/nowhere' cannot be used ("));
  CHECK(run.said("set TMPDIR to a folder that all workers can use"));
}

TEST_CASE("meeting: a run that was killed while it met, or later, does not spoil the next") {
  const place p;
  {
    children met;
    for (int r = 0; r < 2; ++r) met.push_back(start(p, "wait", r, 2));
    for (auto& c : met) c->read_until("greeted all");
    for (auto& c : met) c->kill(SIGKILL);
    for (auto& c : met) static_cast<void>(c->wait());
  }
  CHECK(p.empty());  // once they have met there is nothing to leave
  {
    const auto alone = start(p, "wait", 1, 2);
    REQUIRE(eventually([&] { return p.waits(1); }));
    alone->kill(SIGKILL);
    static_cast<void>(alone->wait());
  }
  CHECK_FALSE(p.empty());
  children next;
  for (int r = 0; r < 2; ++r) next.push_back(start(p, "greet", r, 2));
  check_well(next);
  CHECK(p.empty());
}

TEST_CASE("meeting: two runs of one parent at once, and two steps of one job, do not mix") {
  for (const bool steps : {false, true}) {
    const place p;
    children runs[2];
    for (int r = 0; r < 2; ++r) {
      for (int which : {0, 1}) {
        variables more;
        if (steps) {
          more = {{"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", std::to_string(which)}};
        }
        // By hand, runs of different programs or command lines are told apart: here by a deadline.
        runs[which].push_back(
            start(p, "introduce", r, 2, std::move(more), steps || which == 0 ? "60" : "61"));
      }
    }
    for (auto& run : runs) {
      for (auto& c : run) CHECK(c->wait() == 0);
      const std::string both =
          "members " + std::to_string(run[0]->pid()) + " " + std::to_string(run[1]->pid()) + "\n";
      for (auto& c : run) {
        INFO(c->output());
        CHECK(c->said(both));
      }
    }
    CHECK(p.empty());
  }
}

TEST_CASE("meeting: two runs with one command line at once are both whole") {
  const place p;
  children runs;
  for (int i = 0; i < 2; ++i) {
    for (int r = 0; r < 2; ++r) runs.push_back(start(p, "greet", r, 2));
  }
  for (auto& c : runs) {
    CHECK(c->wait() == 0);
    INFO(c->output());
    CHECK(c->said("greeted all"));
  }
  CHECK(p.empty());
}

TEST_CASE("meeting: who is missing is named to all") {
  const place p;
  children run;
  for (const int r : {0, 2}) run.push_back(start(p, "greet", r, 4, {}, "5"));
  for (auto& c : run) {
    CHECK(c->wait() == 1);
    INFO(c->output());
    CHECK(c->said("after 5000 ms these ranks of 4 are missing: 1, 3"));
  }
  CHECK(p.empty());
}

TEST_CASE("meeting: one that is killed while it waits is named to all, at once") {
  const place p;
  children run;
  for (const int r : {0, 1, 2}) run.push_back(start(p, "greet", r, 4, {}, "100"));
  REQUIRE(eventually([&] { return p.waits(0) && p.waits(1) && p.waits(2); }));
  run[1]->kill(SIGKILL);
  for (const int r : {0, 2}) {
    CHECK(run[r]->wait() == 1);
    INFO(run[r]->output());
    CHECK(run[r]->said("rank 1 died while the workers met"));
  }
  CHECK(p.empty());
}

TEST_CASE("meeting: the token leaves the store once all have joined") {
  const place p;
  store_at at;
  children run;
  run.push_back(start(p, "wait", 0, 2, at.environment()));
  REQUIRE(eventually([&] { return at.has("worker/0"); }));
  CHECK(at.has("token"));  // whoever reaches the store can read it until then
  run.push_back(start(p, "wait", 1, 2, at.environment()));
  for (auto& c : run) c->read_until("greeted all");
  CHECK(at.has("worker/1"));  // the store still answers
  CHECK_FALSE(at.has("token"));
  for (auto& c : run) c->kill(SIGKILL);
}

TEST_CASE("meeting: with WEFT_TOKEN_FILE no token is in any store" * doctest::test_suite("all")) {
  const place p;
  const auto secret = p.root / "secret";
  std::ofstream(secret) << "00112233445566778899aabbccddeeff\n";
  store_at at;
  variables more = at.environment();
  more.emplace_back("WEFT_TOKEN_FILE", secret.string());
  children run;
  run.push_back(start(p, "greet", 0, 2, more));
  REQUIRE(eventually([&] { return at.has("worker/0"); }));
  const auto token = at.store->get("weft/0/token");
  CHECK(std::string(token.begin(), token.end()) == "file");
  run.push_back(start(p, "greet", 1, 2, more));
  check_well(run);
  // One that has none is not let in, and says why; so is nonsense.
  store_at other;
  variables with = other.environment();
  with.emplace_back("WEFT_TOKEN_FILE", secret.string());
  const auto first = start(p, "greet", 0, 2, with, "20");
  const auto second = start(p, "greet", 1, 2, other.environment(), "20");
  CHECK(second->wait() == 1);
  CHECK(second->said("WEFT_TOKEN_FILE must be set for all workers or for none"));
  static_cast<void>(first->wait());
  std::ofstream(secret) << "too short";
  const auto bad = start(p, "greet", 0, 2, more);
  CHECK(bad->wait() == 1);
  CHECK(bad->said("must name a file with 32 hexadecimal digits"));
}

TEST_CASE("meeting: at a store, who is missing is named to all" * doctest::test_suite("all")) {
  const place p;
  store_at at;
  children run;
  for (const int r : {0, 1, 2}) run.push_back(start(p, "greet", r, 4, at.environment(), "8"));
  for (auto& c : run) {
    CHECK(c->wait() == 1);
    INFO(c->output());
    CHECK(c->said("after 8000 ms these ranks of 4 are missing: 3"));
  }
}

TEST_CASE("meeting: at a store, runs of different WEFT_RUN_ID do not mix, and those of one meet") {
  const place p;
  const store_at at;
  const auto in_run = [&at](const char* id) {
    variables more = at.environment();
    more.emplace_back("WEFT_RUN_ID", id);
    return more;
  };
  children one;
  for (const int r : {0, 1}) one.push_back(start(p, "greet", r, 2, in_run("a")));
  check_well(one);
  const auto first = start(p, "greet", 0, 2, in_run("a"), "4");
  const auto stranger = start(p, "greet", 1, 2, in_run("b"), "4");
  CHECK(stranger->wait() == 1);
  CHECK(first->wait() == 1);
  INFO(first->output());
  CHECK(first->said("these ranks of 2 are missing: 1"));
}

TEST_CASE("meeting: at a store, whoever waits for a late one does so in silence" *
          doctest::test_suite("all")) {
  for (const int first : {0, 1}) {
    const place p;
    store_at at;
    children run(2);
    run[static_cast<std::size_t>(first)] = start(p, "greet", first, 2, at.environment());
    // Longer than any one of its waits, each of which libtorch would complain of.
    std::this_thread::sleep_for(2500ms);
    run[static_cast<std::size_t>(1 - first)] = start(p, "greet", 1 - first, 2, at.environment());
    check_well(run);
    for (const auto& c : run) {
      INFO(c->output());
      CHECK_FALSE(c->said("c10d"));
    }
  }
}

TEST_CASE("meeting: rank 0, killed or stopped, is named as the one that holds the store" *
          doctest::test_suite("all")) {
  const place p;
  store_at stores[2];
  children runs[2];
  for (const int which : {0, 1}) {
    for (const int r : {0, 1}) {
      runs[which].push_back(start(p, "greet", r, 3, stores[which].environment(), "15"));
    }
  }
  for (const int which : {0, 1}) {
    store_at& at = stores[which];
    REQUIRE(eventually([&] { return at.has("worker/0") && at.has("worker/1"); }));
    runs[which][0]->kill(which == 0 ? SIGKILL : SIGSTOP);
  }
  for (const int which : {0, 1}) {
    child& survivor = *runs[which][1];
    CHECK(survivor.wait() == 1);
    INFO(survivor.output());
    CHECK(survivor.said("the store at 127.0.0.1:" + stores[which].port + ", which rank 0 holds,"));
    runs[which][0]->kill(SIGKILL);
  }
}

TEST_CASE("meeting: nobody behind MASTER_ADDR, or somebody who is no store, within the deadline") {
  const place p;
  store_at nobody;
  const listener mute;
  store_at silent;
  silent.port = mute.port;
  children both;
  for (store_at* at : {&nobody, &silent}) {
    both.push_back(start(p, "greet", 1, 2, at->environment(), "4"));
  }
  for (store_at* at : {&nobody, &silent}) {
    const auto& c = both[at == &nobody ? 0 : 1];
    CHECK(c->wait() == 1);
    INFO(c->output());
    CHECK(c->said("the store at 127.0.0.1:" + at->port + ", which rank 0 holds,"));
    // The deadline holds, whatever the store's client adds up.
    CHECK(took(*c) < 8000);
    if (at == &silent) CHECK(c->said("another program, which is no c10d store"));
  }
}

TEST_CASE("meeting: a web server behind MASTER_ADDR is said to be no store") {
  const place p;
  const listener server;
  store_at at;
  at.port = server.port;
  std::atomic<bool> over{false};
  const auto answer = [&] {
    const auto until = std::chrono::steady_clock::now() + child::patience;
    std::vector<int> open;
    while (!over && std::chrono::steady_clock::now() < until) {
      pollfd comes{server.fd, POLLIN, 0};
      if (::poll(&comes, 1, 20) <= 0) continue;
      open.push_back(::accept4(server.fd, nullptr, nullptr, SOCK_CLOEXEC));
      const std::string refusal = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
      static_cast<void>(::send(open.back(), refusal.data(), refusal.size(), MSG_NOSIGNAL));
    }
    for (const int fd : open) ::close(fd);
  };
  struct joined {
    std::atomic<bool>& over;
    std::thread thread;
    ~joined() {
      over = true;
      thread.join();
    }
  } const answers{over, std::thread(answer)};
  const auto c = start(p, "greet", 1, 2, at.environment(), "6");
  CHECK(c->wait() == 1);
  INFO(c->output());
  CHECK(c->said("the store at 127.0.0.1:" + at.port + ", which rank 0 holds,"));
  CHECK(c->said("a program that is no c10d store answers there"));
}

TEST_CASE(
    "meeting: a port that is taken, or is none, is said at once by who would hold the store") {
  const place p;
  const listener other;
  variables taken = {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", other.port}};
  const auto held = start(p, "greet", 0, 2, taken);
  CHECK(held->wait() == 1);
  INFO(held->output());
  CHECK(held->said("MASTER_PORT=" + other.port +
                   " is taken on rank 0's host, by another run or another program"));
  CHECK_FALSE(held->said("c10d"));
  CHECK(took(*held) < 30'000);  // of 60 s
  for (const char* none : {"0", "70000"}) {
    for (const int rank : {0, 1}) {
      const auto c =
          start(p, "greet", rank, 2, {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", none}});
      CHECK(c->wait() == 1);
      INFO(c->output());
      CHECK(c->said(std::string("MASTER_PORT=") + none + " must be a port, from 1 to 65535"));
    }
  }
}

TEST_CASE("meeting: a name for rank 0's host that is not found is said with its variable" *
          doctest::test_suite("all")) {
  const place p;
  for (const int rank : {0, 1}) {
    const auto c = start(p, "greet", rank, 2,
                         {{"MASTER_ADDR", "no-such-host.invalid"}, {"MASTER_PORT", "29500"}}, "2");
    CHECK(c->wait() == 1);
    INFO(c->output());
    CHECK(c->said("rendezvous failed: "));
    CHECK(c->said("MASTER_ADDR='no-such-host.invalid' is not found by this host's name service"));
  }
  store_at at;
  variables brackets = {{"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", at.port}};
  children run;
  for (int r = 0; r < 2; ++r) run.push_back(start(p, "greet", r, 2, brackets));
  check_well(run);
}

TEST_CASE("meeting: a folder for temporary files that is none is said with its variable") {
  const auto c =
      start_alone("greet", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TMPDIR", "/no/such/folder"}});
  CHECK(c->wait() == 1);
  INFO(c->output());
  CHECK(c->said("rendezvous failed: workers of one host meet in the folder for temporary "
                "files, but TMPDIR='/no/such/folder' cannot be used"));
}

TEST_CASE("meeting: names and roles may be any bytes, wherever the workers meet" *
          doctest::test_suite("all")) {
  const place p;
  for (const bool at_a_store : {false, true}) {
    CAPTURE(at_a_store);
    store_at at;
    children run;
    for (int r = 0; r < 3; ++r) {
      run.push_back(start(p, "names", r, 3, at_a_store ? at.environment() : variables()));
    }
    check_well(run);
  }
  for (const char* deed : {"names", "names-of-threads"}) {
    CAPTURE(deed);
    const auto c = start_alone(deed, {});
    CHECK(c->wait() == 0);
    CHECK(c->count(" of 3 greeted all") == 3);
  }
}

TEST_CASE("meeting: a task of srun's is one of its step's workers, a batch script is none") {
  const place p;
  const variables job = {{"SLURM_JOB_ID", "4711"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_NTASKS", "3"},
                         {"SLURM_NNODES", "2"},
                         {"SLURM_LOCALID", "0"}};
  // No step: it starts its three workers itself, as it does by hand.
  const auto script = start_alone("greet", job);
  CHECK(script->wait() == 0);
  CHECK(script->count(" of 3 greeted all") == 3);

  variables step = job;
  step.emplace_back("SLURM_STEP_ID", "0");
  const auto apart = start_alone("greet", step);
  CHECK(apart->wait() == 1);
  INFO(apart->output());
  CHECK(apart->said("the workers are on several hosts, so MASTER_ADDR and MASTER_PORT must name "
                    "where to meet"));

  step.emplace_back("SLURM_STEP_NUM_TASKS", "1");
  const auto one = start_alone("second", step);
  CHECK(one->wait() == 1);
  INFO(one->output());
  CHECK(one->said("there is no rank 1; the world has 1 worker, as srun says, and that overrides "
                  "options.workers = 3: `srun -n 3` starts that many"));
}

TEST_CASE("meeting: a second process of one rank is refused, and the first ones meet") {
  const place p;
  store_at at;
  children run;
  run.push_back(start(p, "greet", 0, 2, at.environment()));
  REQUIRE(eventually([&] { return at.has("worker/0"); }));
  const auto again = start(p, "greet", 0, 2, at.environment(), "10");
  CHECK(again->wait() == 1);  // the port is taken
  run.push_back(start(p, "greet", 1, 2, at.environment()));
  check_well(run);
}

}  // namespace meetings_of_processes
