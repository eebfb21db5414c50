// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/culprit.hpp>
#include <weft/engine/impl/launch.hpp>
#include <weft/engine/launch.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace culprits {

using weft::engine::culprit_finder;

constexpr int exited(int code) { return code << 8; }  // as waitpid says it
constexpr int killed = 9;

/// Three workers that have all begun.
culprit_finder three() {
  culprit_finder f({"a", "b b", "c"});
  for (std::uint32_t r = 0; r < 3; ++r) f.heard(r, "begins\n");
  return f;
}

TEST_CASE("culprit: a good end names nobody") {
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

TEST_CASE("culprit: who was killed, before or after those that lost it") {
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

TEST_CASE("culprit: who left with status 0 before the end") {
  auto f = three();
  f.ended(1, exited(0));
  CHECK(f.culprit() == "worker 'b b' (rank 1) left with status 0 before the run had ended");
  culprit_finder late({"a", "b"});
  late.ended(1, exited(0));  // nobody has begun: this may be no program that uses `run`
  CHECK_FALSE(late.failed());
  late.heard(0, "begins\n");
  CHECK(late.culprit() == "worker 'b' (rank 1) left with status 0 before the run had ended");
}

TEST_CASE("culprit: programs that do not use run are judged by their status alone") {
  culprit_finder f({"a", "b"});
  f.ended(0, exited(0));
  CHECK_FALSE(f.failed());
  f.ended(1, exited(3));
  CHECK(f.culprit() == "worker 'b' (rank 1) exited with status 3");
}

TEST_CASE("culprit: whose main failed") {
  auto f = three();
  f.heard(0, "ends c the data are gone\n");
  f.ended(0, exited(1));
  CHECK_FALSE(f.culprit());
  f.heard(2, "ends c the data are gone\n");
  f.ended(2, exited(1));
  CHECK(f.culprit() == "worker 'c' (rank 2) failed: the data are gone");
}

TEST_CASE("culprit: who is blamed by most, and never ends by itself") {
  culprit_finder f({"a", "b", "c", "d"});
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

TEST_CASE("culprit: where nobody is to blame, the first who said why") {
  auto f = three();
  f.heard(2, "ends ? these ranks of 4 are missing: 3\n");
  f.ended(2, exited(1));
  f.heard(0, "ends ? other words\n");
  f.ended(0, exited(1));
  CHECK(f.suspect() == "worker 'c' (rank 2) exited with status 1: these ranks of 4 are missing: 3");
}

TEST_CASE("culprit: reports come in pieces, and nonsense is nobody's fault") {
  const std::string text = "begins\nnonsense\nends \nends ? \nends well\n";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    culprit_finder f({"a"});
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

}  // namespace culprits
