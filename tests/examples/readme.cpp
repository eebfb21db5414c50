// SPDX-License-Identifier: BSL-1.0
// The README shows the small examples as they are.

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

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

}  // namespace
