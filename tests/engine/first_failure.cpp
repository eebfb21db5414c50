// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/launch/first_failure.hpp>
#include <weft/engine/launch/impl/launch.hpp>
#include <weft/engine/launch/launch.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace first_failures {

using weft::engine::first_failure;

constexpr int exited(int code) { return code << 8; }  // as waitpid says it
constexpr int killed = 9;

/// Three workers that have all begun.
first_failure three() {
  first_failure f({"a", "b b", "c"});
  for (std::uint32_t r = 0; r < 3; ++r) f.heard(r, "begins\n");
  return f;
}

TEST_CASE("first failure: a run that failed is not made good by a process that returns 0") {
  first_failure finder({"a", "b"});
  finder.heard(0, "begins\nends a its owner has destroyed it\n");
  finder.ended(0, 0);
  CHECK(finder.failed());
  REQUIRE(finder.culprit());
  CHECK(*finder.culprit() == "worker 'a' (rank 0) failed: its owner has destroyed it");
}

TEST_CASE("first failure: a good end names nobody") {
  auto f = three();
  CHECK_FALSE(f.ended_well());
  for (std::uint32_t r = 0; r < 3; ++r) {
    f.heard(r, "ends well\n");
    CHECK(f.ended_well());
    f.ended(r, exited(0));
  }
  CHECK_FALSE(f.failed());
  CHECK_FALSE(f.culprit());
  CHECK_FALSE(f.suspect());
}

TEST_CASE("first failure: where it is unknown how a process ended, what it said counts") {
  auto f = three();
  f.heard(0, "ends well\n");
  f.ended(0, std::nullopt);
  CHECK_FALSE(f.failed());
  f.ended(1, std::nullopt);
  CHECK(f.failed());
  CHECK(f.culprit() ==
        "worker 'b b' (rank 1) ended before its run did; its exit status is unknown, because "
        "something else in the launching program collected it (a waitpid(-1), for example)");
  auto g = three();
  g.heard(2, "ends c no more data\n");
  g.ended(2, std::nullopt);
  CHECK(g.culprit() == "worker 'c' (rank 2) failed: no more data");
}

TEST_CASE("first failure: who was killed, before or after those that lost it") {
  for (const bool first : {true, false}) {
    auto f = three();
    if (first) f.ended(1, killed);
    for (const std::uint32_t r : {0u, 2u}) {
      f.heard(r, "ends b%b the connection closed\n");
      f.ended(r, exited(1));
    }
    CHECK(f.failed());
    CHECK(f.culprit().has_value() == first);
    CHECK(f.suspect()->find("worker 'b b' (rank 1) was") == 0);
    f.ended(1, killed);
    CHECK(f.culprit() == "worker 'b b' (rank 1) was killed by signal 9 (Killed)");
    CHECK(f.suspect() == f.culprit());
  }
}

TEST_CASE("first failure: who left with status 0 before the end") {
  auto f = three();
  f.ended(1, exited(0));
  CHECK(f.culprit() == "worker 'b b' (rank 1) left with status 0 before the run had ended");
  first_failure late({"a", "b"});
  late.ended(1, exited(0));  // nobody has begun: this may be no program that uses `run`
  CHECK_FALSE(late.failed());
  late.heard(0, "begins\n");
  CHECK(late.culprit() == "worker 'b' (rank 1) left with status 0 before the run had ended");
}

TEST_CASE("first failure: programs that do not use run are judged by their status alone") {
  first_failure f({"a", "b"});
  f.ended(0, exited(0));
  CHECK_FALSE(f.failed());
  f.ended(1, exited(3));
  CHECK(f.culprit() == "worker 'b' (rank 1) exited with status 3");
}

TEST_CASE("first failure: whose main failed") {
  auto f = three();
  f.heard(0, "ends c the data are gone\n");
  f.ended(0, exited(1));
  CHECK_FALSE(f.culprit());
  f.heard(2, "ends c the data are gone\n");
  f.ended(2, exited(1));
  CHECK(f.culprit() == "worker 'c' (rank 2) failed: the data are gone");
}

TEST_CASE("first failure: who is blamed by most, and never ends by itself") {
  first_failure f({"a", "b", "c", "d"});
  const char* reports[] = {"ends b lost\n", "", "ends d no sign of life\n", ""};
  for (std::uint32_t r = 0; r < 4; ++r) f.heard(r, "begins\n");
  f.heard(0, reports[0]);
  f.ended(0, exited(1));
  CHECK(f.suspect() == "worker 'b' (rank 1) was lost: lost");
  f.heard(2, reports[2]);
  f.ended(2, exited(1));
  CHECK(f.suspect() == "worker 'b' (rank 1) was lost: lost");
  f.heard(1, reports[2]);
  f.ended(1, exited(1));
  CHECK(f.suspect() == "worker 'd' (rank 3) was lost: no sign of life");
  CHECK_FALSE(f.culprit());
}

TEST_CASE("first failure: where nobody is to blame, the first who said why") {
  auto f = three();
  f.heard(2, "ends ? these ranks of 4 are missing: 3\n");
  f.ended(2, exited(1));
  f.heard(0, "ends ? other words\n");
  f.ended(0, exited(1));
  CHECK(f.suspect() == "worker 'c' (rank 2) exited with status 1: these ranks of 4 are missing: 3");
}

// ── runs that go on ──

/// As `three`, and the run goes on without the last.
first_failure three_but_one() {
  first_failure f({"a", "b b", "c"}, {true, false, true});  // rank 0 never may
  for (std::uint32_t r = 0; r < 3; ++r) f.heard(r, "begins\n");
  CHECK_FALSE(f.may_go(0));
  CHECK(f.may_go(2));
  return f;
}
void end_well(first_failure& f) {
  for (const std::uint32_t r : {0u, 1u}) {
    f.heard(r, "ends well\n");
    f.ended(r, exited(0));
  }
  CHECK_FALSE(f.failed());
  CHECK_FALSE(f.culprit());
  CHECK_FALSE(f.suspect());
  CHECK(f.ended_well());
}

TEST_CASE("first failure: whoever may go is told of once, however it goes, and is none") {
  const auto gone = [](const char* report, int status) {
    auto f = three_but_one();
    f.heard(2, report);
    f.ended(2, status);
    const auto told = f.take_gone();
    CHECK(f.take_gone().empty());
    f.heard(1, "begins\n");  // looks for leavers again
    CHECK(f.take_gone().empty());
    end_well(f);
    REQUIRE(told.size() == 1);
    return told.front();
  };
  CHECK(gone("", killed) == "worker 'c' (rank 2) was killed by signal 9 (Killed)");
  CHECK(gone("", exited(0)) == "worker 'c' (rank 2) left with status 0 before the run had ended");
  CHECK(gone("", exited(7)) == "worker 'c' (rank 2) exited with status 7");
  CHECK(gone("ends c the data are gone\n", exited(1)) ==
        "worker 'c' (rank 2) failed: the data are gone");
}

TEST_CASE(
    "first failure: that one who may go blames another proves nothing, but counts as a voice") {
  auto f = three_but_one();
  f.heard(2, "ends b%b no sign of life\n");
  f.ended(2, exited(1));
  CHECK(f.take_gone().empty());
  end_well(f);  // it was cut off
  auto with_others = three_but_one();
  with_others.heard(2, "ends b%b no sign of life\n");
  with_others.ended(2, exited(1));
  with_others.heard(0, "ends b%b it closed the connection\n");
  with_others.ended(0, exited(1));
  CHECK(with_others.failed());
  CHECK(with_others.suspect() == "worker 'b b' (rank 1) was lost: no sign of life");
}

TEST_CASE("first failure: the others, and rank 0, fail a run as ever where somebody may go") {
  auto f = three_but_one();
  f.ended(2, killed);
  f.ended(1, killed);
  CHECK(f.culprit() == "worker 'b b' (rank 1) was killed by signal 9 (Killed)");
  auto zero = three_but_one();
  zero.ended(0, killed);
  CHECK(zero.culprit() == "worker 'a' (rank 0) was killed by signal 9 (Killed)");
}

TEST_CASE("first failure: reports come in pieces, and nonsense is nobody's fault") {
  const std::string text = "begins\nnonsense\nends \nends ? \nends well\n";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    first_failure f({"a"});
    f.heard(0, text.substr(0, cut));
    f.heard(0, text.substr(cut));
    f.ended(0, exited(0));
    CHECK_FALSE(f.failed());
  }
}

TEST_CASE("lines: whole ones, also in pieces; a bar's last state; nothing without bound") {
  std::vector<std::string> printed;
  const auto print = [&](std::string_view line) { printed.emplace_back(line); };
  weft::engine::line_splitter lines;
  lines.add("a\nb", print);
  lines.add("c\n\nd", print);
  CHECK(printed == std::vector<std::string>{"a", "bc", ""});
  lines.finish(print);
  lines.finish(print);
  CHECK(printed.back() == "d");
  CHECK(printed.size() == 4);
  for (int i = 0; i < 10000; ++i) {
    lines.add("\r" + std::string(100, '#') + std::to_string(i), print);
    CHECK(lines.held() <= weft::engine::line_splitter::longest);
  }
  CHECK(printed.size() == 4);
  lines.add("\n", print);
  CHECK(printed.size() == 5);
  CHECK(printed.back().ends_with("#9999"));
  for (int i = 0; i < 1000; ++i) lines.add(std::string(1000, 'x'), print);
  CHECK(lines.held() <= weft::engine::line_splitter::longest);
  CHECK(printed.size() > 10);
}

}  // namespace first_failures
