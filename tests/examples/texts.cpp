// SPDX-License-Identifier: BSL-1.0
// The README shows the small examples as they are.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(WEFT_SOURCE_DIR) + "/" + path);
  REQUIRE_MESSAGE(file, path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Without the comment on top, which the README says in its own words.
std::string program(const std::string& path) {
  std::istringstream lines(text_of(path));
  std::string line;
  std::string text;
  while (std::getline(lines, line)) {
    if (text.empty() && (line.empty() || line.starts_with("//"))) continue;
    text += line + '\n';
  }
  return text;
}

TEST_CASE("examples: the README shows them as they are") {
  const std::string readme = text_of("README.md");
  for (const char* name :
       {"hello.cpp", "call_rank1.cpp", "remote_object.cpp", "remote_gradients.cpp",
        "custom_transport.hpp", "custom_transport.cpp"}) {
    CAPTURE(name);
    const std::string shown = "```cpp\n" + program(std::string("examples/") + name) + "```";
    CHECK(readme.find(shown) != std::string::npos);
  }
}

struct part {
  std::string title;
  std::string code;
};

/// What stands between `// [title]` and `// [end]`.
std::vector<part> parts(const std::string& path) {
  std::istringstream lines(text_of(path));
  std::vector<part> out;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "// [end]") {
      inside = false;
    } else if (line.starts_with("// [") && line.ends_with("]")) {
      REQUIRE_MESSAGE(!inside, line);
      out.push_back({line.substr(4, line.size() - 5), {}});
      inside = true;
    } else if (inside) {
      out.back().code += line + '\n';
    }
  }
  CHECK_FALSE(inside);
  return out;
}

TEST_CASE("examples: the README shows each part of the tour as it is, in ten lines at most") {
  const std::string readme = text_of("README.md");
  const std::vector<part> all = parts("examples/tour.cpp");
  CHECK(all.size() >= 8);
  std::string titles;
  for (const part& p : all) {
    CAPTURE(p.title);
    titles += p.title + ' ';
    CHECK(std::count(p.code.begin(), p.code.end(), '\n') <= 10);
    CHECK(readme.find("```cpp\n" + p.code + "```") != std::string::npos);
  }
  for (const char* shown :
       {"start",       "post",          "remote",          "publish",  "lookup",  "within",
        "as_expected", "retry",         "with_task_group", "gather",   "first",   "on_pool",
        "sleep_for",   "with_deadline", "channel",         "callback", "sharded", "event",
        "immediate",   "named",         "expose",          "optim"}) {
    CAPTURE(shown);
    CHECK(titles.find(shown) != std::string::npos);
  }
}

TEST_CASE("examples: the README shows how to simulate a program as the election does") {
  const std::string readme = text_of("README.md");
  const std::vector<part> all = parts("examples/leader_election.cpp");
  CHECK(all.size() == 2);
  for (const part& p : all) {
    CAPTURE(p.title);
    CHECK(readme.find("```cpp\n" + p.code + "```") != std::string::npos);
  }
}

}  // namespace
