// SPDX-License-Identifier: BSL-1.0
// A link between two workers, neither of them rank 0, that breaks while both live: every post that
// was accepted has run, or is said to be lost.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <process/child.hpp>
#include <process/hosts.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

namespace broken_links {

using weft::testing::child;
using weft::testing::hosts;

const std::string program = WEFT_TEST_PROGRAMS "/cut";
const std::string between = "the link between worker 'worker1' (rank 1) and worker 'worker2' "
                            "(rank 2) was lost, though both can be reached: ";

/// The number at the first match of `pattern`; -1: there is none.
long number(const std::string& text, const std::string& pattern) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(pattern)) ? std::stol(found[1]) : -1;
}
/// How many posts were lost, by what was said.
long check_counts(const std::string& said) {
  const long accepted = number(said, "accepted ([0-9]+)\n");
  const long ran = std::max(number(said, "ran ([0-9]+)\n"), 0L);
  const long lost = number(said, "([0-9]+) of the [0-9]+ posts of worker 'worker1'");
  CHECK_FALSE(said.find("up to ") != std::string::npos);  // both ends have counted
  CHECK(accepted >= 20);
  CHECK(accepted == ran + std::max(lost, 0L));
  if (lost >= 0)
    CHECK(number(said, "[0-9]+ of the ([0-9]+) posts of worker 'worker1'") == accepted);
  return std::max(lost, 0L);
}
/// How often each of these is done.
int times() {
  const char* const text = std::getenv("WEFT_TEST_TIMES");
  return text ? std::atoi(text) : 1;
}

std::string output_of(const std::string& command) {
  std::string out;
  std::array<char, 4096> chunk{};
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (!pipe) return out;
  // bounded: by the command's own end
  while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe)) {
    out.append(chunk.data(), got);
  }
  ::pclose(pipe);
  return out;
}

/// Why the kernel closes nobody's sockets here; empty: it does.
std::string cannot_close_sockets() {
  if (::geteuid() != 0) return "closing sockets needs root";
  return output_of("command -v ss").empty() ? "closing sockets needs iproute2" : "";
}

/// The kernel closes the connection between these two processes.
bool close_between(pid_t a, pid_t b) {
  // ESTAB 0 0 127.0.0.1:40000 127.0.0.1:40001 users:(("cut",pid=17,fd=9))
  const std::string all = output_of("ss -tnpH state established");
  const auto ends_of = [&](pid_t pid) {
    std::vector<std::pair<std::string, std::string>> out;
    const std::regex line("127\\.0\\.0\\.1:([0-9]+) +127\\.0\\.0\\.1:([0-9]+) +[^\n]*pid=" +
                          std::to_string(pid) + ",");
    for (std::sregex_iterator at(all.begin(), all.end(), line), end; at != end; ++at) {
      out.emplace_back((*at)[1], (*at)[2]);
    }
    return out;
  };
  for (const auto& [here, there] : ends_of(a)) {
    for (const auto& [its_here, its_there] : ends_of(b)) {
      if (here != its_there || there != its_here) continue;
      return !output_of("ss -KtnH 'sport = :" + here + " and dport = :" + there + "'").empty();
    }
  }
  return false;
}

pid_t process_of(const child& run, int rank) {
  return static_cast<pid_t>(
      number(run.output(), "pid ([0-9]+) is rank " + std::to_string(rank) + "\n"));
}

TEST_CASE(
    "broken link: a connection that the kernel closes ends the run, and no post is forgotten") {
  if (const std::string why = cannot_close_sockets(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return;
  }
  for (int i = 0; i < times(); ++i) {
    child run({program, "end", "1000000", "0"});
    run.read_until("20 are posted");
    REQUIRE(close_between(process_of(run, 1), process_of(run, 2)));
    const int status = run.wait();
    INFO(run.output());
    CHECK(status == 1);
    check_counts(run.output());
    CHECK(run.count("\nweft: worker 'worker2' (rank 2) failed: " + between) == 1);
  }
}

TEST_CASE(
    "broken link: a run that goes on leaves one behind, and does not end well if posts are lost") {
  if (const std::string why = cannot_close_sockets(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return;
  }
  for (int i = 0; i < times(); ++i) {
    child run({program, "go_on", "1000000", "0"});
    run.read_until("20 are posted");
    REQUIRE(close_between(process_of(run, 1), process_of(run, 2)));
    const int status = run.wait();
    INFO(run.output());
    const long lost = check_counts(run.output());
    CHECK(status == (lost > 0 ? 1 : 0));
    CHECK(run.said("[worker2] weft: worker2: worker 'worker2': worker failed: " + between));
    if (lost > 0) CHECK(run.said("[worker0] weft: worker0: " + between));
  }
}

TEST_CASE("broken link: hosts that lose each other, but not rank 0's, lose no post in silence") {
  if (hosts::skipped()) return;
  for (int i = 0; i < 2 * times(); ++i) {
    const std::string policy = i % 2 == 0 ? "end" : "go_on";
    CAPTURE(policy);
    hosts net({"a", "b", "c"});
    for (const char* const name : {"a", "b", "c"}) net.etc_resolv(name, "");
    const auto at = [&](const std::string& host, const std::string& rank) {
      return child(net.inside(host, {program, policy, "80", "20000"}),
                   {{"RANK", rank},
                    {"WORLD_SIZE", "3"},
                    {"LOCAL_WORLD_SIZE", "1"},
                    {"MASTER_ADDR", net.address("a")},
                    {"MASTER_PORT", "29517"}});
    };
    child zero = at("a", "0");
    child one = at("b", "1");
    child two = at("c", "2");
    one.read_until("20 are posted");
    net.cut("b", "c");
    const int at_one = one.wait();
    const int at_two = two.wait();
    const int at_zero = zero.wait();
    const std::string all = zero.output() + one.output() + two.output();
    INFO(all);
    const long lost = check_counts(all);
    CHECK(lost > 0);
    CHECK(zero.said(between));
    CHECK(at_zero == 1);
    CHECK(at_one == (policy == "end" ? 1 : 0));
    CHECK(at_two == 1);
    CHECK(two.said(between));
  }
}

}  // namespace broken_links
