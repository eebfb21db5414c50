// SPDX-License-Identifier: BSL-1.0
// Kills and stops of real processes: each way × each stage of a run × rank 0 or another × TCP or
// Unix sockets, three workers a cell. Prints one table; several cells run at once.
#include <weft/core/error.hpp>
#include <weft/wire/header.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <core/run_all.hpp>
#include <core/temporary_folder.hpp>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <process/child.hpp>
#include <process/store_at.hpp>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace matrix_of_ends {

using weft::testing::child;
using children = std::vector<std::unique_ptr<child>>;

const std::string program = WEFT_TEST_PROGRAMS "/matrix";

/// Silence is noticed from this version of the wire on, which knows pings.
constexpr bool stops_are_noticed = weft::wire_version >= 2;

struct cell {
  int signal;
  std::string stage;
  int victim;
  std::string transport;
  std::string outcome{};  ///< for the table
  std::string wrong{};    ///< what is not as it must be
  int begun = 0;          ///< survivors whose caller heard that the victim may have run it
};

/// The last sentence in which a worker says why it fails.
std::string sentence(const child& c) { return c.last_line_from("weft: worker"); }

/// A folder for temporary files, and a store.
struct place : weft::testing::temporary_folder {
  /// Workers over TCP meet at a store of rank 0, those over Unix sockets in a file.
  [[nodiscard]] std::unique_ptr<child> start(const cell& c, int rank) const {
    std::vector<std::pair<std::string, std::string>> environment = {
        {"RANK", std::to_string(rank)}, {"WORLD_SIZE", "3"},      {"LOCAL_WORLD_SIZE", "3"},
        {"TMPDIR", root.string()},      {"OMP_NUM_THREADS", "1"}, {"WEFT_RUN_ID", "matrix"}};
    if (c.transport == "tcp") {
      for (const auto& variable : store.environment()) environment.push_back(variable);
    }
    return std::make_unique<child>(
        std::vector<std::string>{program, c.transport, c.stage, std::to_string(c.victim)},
        environment);
  }
  weft::testing::store_at store;
};

/// Waits for the victim and the others to be where the stage wants them.
void arrive(const cell& c, place& p, children& run) {
  if (c.stage != "rendezvous") {
    for (auto& worker : run) worker->read_until("ready\n");  // an address may be "already in use"
    return;
  }
  // Rank 2 has not come, so the other two wait: at the store, or with a seat in a file.
  const bool there = weft::testing::eventually([&] {
    if (c.transport == "tcp") {
      return p.store.has("matrix/worker/0") && p.store.has("matrix/worker/1");
    }
    return p.says("0 ") && p.says("1 ");
  });
  if (!there) throw std::runtime_error("the workers do not meet");
}

/// What a survivor must say: it names the victim, in a meeting maybe by its rank alone.
bool names_victim(const cell& c, const std::string& said) {
  const std::string victim = std::to_string(c.victim);
  const bool named = said.find("'worker" + victim + "'") != std::string::npos;
  if (c.stage != "rendezvous" || named) return named;
  if (c.transport == "tcp") {
    return c.victim == 0 && said.find("which rank 0 holds") != std::string::npos;
  }
  return said.find("rank " + victim + " died while the workers met") != std::string::npos ||
         said.find("are missing: " + victim) != std::string::npos;
}

/// What the survivor's own call, pass or step threw: see the program.
std::string heard(const child& c) {
  const std::string mark = "caller: ";
  const std::string line = c.last_line_from(mark);
  return line.empty() ? line : line.substr(mark.size());
}

/// What callers must be told: the victim died, and how far what they asked it for had got.
bool tells_its_caller(cell& c, const std::string& told) {
  if (c.stage == "idle" || c.stage == "returned" || c.stage == "leaving") {
    return told.empty();  // nobody waits for an answer
  }
  using weft::call_progress;
  // A step is a call on what the victim owned.
  const auto lost = c.stage == "step" ? weft::errc::rref_owner_died : weft::errc::peer_died;
  const auto as = [&](call_progress ran) {
    return std::to_string(static_cast<int>(lost)) + " " + std::to_string(static_cast<int>(ran)) +
           " 'worker" + std::to_string(c.victim) + "'";
  };
  if (c.stage == "rendezvous") return told.empty() || told == as(call_progress::not_sent);
  if (told == as(call_progress::maybe_executed)) {
    ++c.begun;
    return true;
  }
  // One of many, of which the last may not have left; but a call that has begun is begun.
  return c.stage != "coroutine" && c.stage != "plain" && told == as(call_progress::not_sent);
}

void play(cell& c) {
  try {
    place p;
    children run;
    const bool meeting = c.stage == "rendezvous";
    for (int rank = 0; rank < (meeting ? 2 : 3); ++rank) run.push_back(p.start(c, rank));
    arrive(c, p, run);
    run[static_cast<std::size_t>(c.victim)]->kill(c.signal);
    const auto since = std::chrono::steady_clock::now();
    // Who is killed with a seat in the file has ended the meeting.
    if (meeting && (c.transport == "tcp" || c.signal == SIGSTOP)) run.push_back(p.start(c, 2));
    for (int rank = 0; rank < static_cast<int>(run.size()); ++rank) {
      if (rank == c.victim) continue;
      child& survivor = *run[static_cast<std::size_t>(rank)];
      const int status = survivor.wait();
      const std::string said = sentence(survivor);
      c.outcome += (c.outcome.empty() ? "" : " ") + std::to_string(status);
      const bool may_be_well = c.stage == "leaving";
      const bool right =
          status == 0 ? may_be_well && said.empty() : status == 1 && names_victim(c, said);
      if (!right || !tells_its_caller(c, heard(survivor))) {
        c.wrong += "rank " + std::to_string(rank) + " ended with " + std::to_string(status) +
                   ", its caller heard \"" + heard(survivor) + "\", and it said:\n" +
                   survivor.output() + "\n";
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - since;
    c.outcome += " " + std::to_string(took.count()).substr(0, 4) + " s";
    run[static_cast<std::size_t>(c.victim)]->kill(SIGKILL);
  } catch (const std::exception& e) {
    c.outcome += "?";
    c.wrong += e.what();
  }
}

/// All cells, some at once: they wait more than they compute.
void play_all(std::vector<cell>& cells) {
  std::atomic<std::size_t> next{0};
  std::vector<std::future<void>> players;
  for (int i = 0; i < 5; ++i) {
    players.push_back(std::async(std::launch::async, [&] {
      // bounded: by the number of cells
      for (std::size_t at = next++; at < cells.size(); at = next++) play(cells[at]);
    }));
  }
  for (auto& p : players) p.get();
}

TEST_CASE("matrix: kills and stops at every stage, with the right outcome in each cell") {
  const std::vector<std::string> stages = {"rendezvous", "idle",      "coroutine", "plain",
                                           "40MB to",    "40MB from", "backward",  "step",
                                           "returned",   "leaving"};
  std::vector<cell> cells;
  int number = 0;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const auto& stage : stages) {
      if (signal == SIGSTOP && !stops_are_noticed && stage != "rendezvous") continue;
      const int one = number++ % 4;  // of the four that follow, unless everything runs
      for (const int victim : {0, 1}) {
        for (const int unix_socket : {0, 1}) {
          if (!weft::testing::run_all() && one != 2 * victim + unix_socket) continue;
          cells.push_back({signal, stage, victim, unix_socket != 0 ? "unix" : "tcp"});
        }
      }
    }
  }
  play_all(cells);
  std::string table = "statuses of the survivors, and when the last had ended; all that are not "
                      "0 name the victim\n"
                      "signal  | stage      | victim | over | outcome\n";
  for (const cell& c : cells) {
    auto padded = [](std::string text, std::size_t width) {
      text.resize(std::max(width, text.size()), ' ');
      return text;
    };
    table += std::string(c.signal == SIGKILL ? "SIGKILL" : "SIGSTOP") + " | " +
             padded(c.stage, 10) + " | rank " + std::to_string(c.victim) + " | " +
             padded(c.transport, 4) + " | " + c.outcome + "\n";
  }
  std::cout << table << std::flush;
  std::map<std::string, int> begun;
  for (const cell& c : cells) begun[c.stage] += c.begun;
  for (const char* stage : {"coroutine", "plain", "40MB to", "40MB from", "backward", "step"}) {
    INFO(std::string(stage));
    CHECK(begun[stage] > 0);
  }
  for (const cell& c : cells) {
    CAPTURE(c.signal);
    CAPTURE(c.stage);
    CAPTURE(c.victim);
    CAPTURE(c.transport);
    INFO(c.wrong);
    CHECK(c.wrong.empty());
  }
}

/// Connections to an endpoint "host:port" that say `text` and stay.
class strangers {
 public:
  strangers(const std::string& endpoint, int count, const std::string& text) {
    const auto colon = endpoint.rfind(':');
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(colon + 1))));
    for (int i = 0; i < count; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      connected_ += ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
      static_cast<void>(::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      sockets_.push_back(fd);
    }
  }
  strangers(const strangers&) = delete;
  strangers& operator=(const strangers&) = delete;
  ~strangers() {
    for (const int fd : sockets_) ::close(fd);
  }
  [[nodiscard]] int connected() const { return connected_; }
  [[nodiscard]] bool all_sent_away() const {
    return std::all_of(sockets_.begin(), sockets_.end(), [](int fd) {
      return weft::testing::eventually([fd] {
        char answer[256];  // a refusal, maybe
        const auto got = ::recv(fd, answer, sizeof answer, MSG_DONTWAIT);
        return got == 0 || (got < 0 && errno != EAGAIN);
      });
    });
  }

 private:
  std::vector<int> sockets_;
  int connected_ = 0;
};

TEST_CASE("matrix: strangers at the port of a worker do not end a run, nor get in") {
  for (const int listener : {0, 1}) {
    if (!weft::testing::run_all() && listener == 0) continue;
    CAPTURE(listener);
    const cell c{SIGKILL, "strangers", listener, "tcp"};
    const place p;
    children run;
    for (int rank = 0; rank < 3; ++rank) run.push_back(p.start(c, rank));
    child& listens = *run[static_cast<std::size_t>(listener)];
    child& calls = *run[static_cast<std::size_t>(1 - listener)];
    child& dies = *run[2];
    for (child* caller : {&calls, &dies}) caller->read_until("round");
    listens.read_until("listens ");
    listens.read_until("\n");
    const std::string endpoint = listens.line_from("listens ").substr(8);
    std::string header(64, '\0');
    header.replace(0, 6, std::string("WEFT") + static_cast<char>(weft::wire_version) + '\4');
    const strangers silent(endpoint, 100, "");
    const strangers garbage(endpoint, 100, std::string(1000, '\xaa'));
    const strangers half(endpoint, 100, header.substr(0, 32));
    const strangers request(endpoint, 100, header);
    CHECK(silent.connected() + garbage.connected() + half.connected() + request.connected() == 400);
    // All are sent away, the silent ones when their time is over, and the run goes on.
    for (const strangers* s : {&silent, &garbage, &half, &request}) CHECK(s->all_sent_away());
    calls.read_until("round", calls.count("round") + 2);
    const strangers more(endpoint, 10, "hello");
    CHECK(more.connected() == 10);
    dies.kill(SIGKILL);
    for (child* survivor : {&listens, &calls}) {
      CHECK(survivor->wait() == 1);
      INFO(survivor->output());
      CHECK(sentence(*survivor).find("'worker2'") != std::string::npos);
    }
  }
}

}  // namespace matrix_of_ends
