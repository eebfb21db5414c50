// SPDX-License-Identifier: BSL-1.0
// autograd/torch_tests.json is a table of PyTorch's own tests of distributed autograd and of its
// optimizer (torch/testing/_internal/distributed/rpc): by name, our test of the same, or behind a
// dash why there is none. This keeps its right side true.
#include "text_of.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <string>

namespace texts {

TEST_CASE("texts: each test of PyTorch's distributed autograd has one of ours, or says why not") {
  const fs::path tests = fs::path(WEFT_SOURCE_DIR) / "tests";
  std::string ours;
  for (const char* folder : {"autograd", "optim"}) {
    for (const auto& entry : fs::directory_iterator(tests / folder)) {
      if (entry.path().extension() == ".cpp") ours += text_of(entry.path());
    }
  }
  const auto table = nlohmann::json::parse(text_of(tests / "autograd/torch_tests.json"));
  std::size_t count = 0;
  for (const auto& [suite, names] : table.items()) {
    for (const auto& [name, of] : names.items()) {
      CAPTURE(name);
      const auto text = of.get<std::string>();
      CAPTURE(text);
      ++count;
      const bool explained = text.starts_with("- ") && text.size() > 20;
      CHECK((explained || ours.find("TEST_CASE(\"" + text + "\")") != std::string::npos ||
             ours.find("TEST_CASE(\n    \"" + text + "\")") != std::string::npos));
    }
  }
  CHECK(count > 50);
}

}  // namespace texts
