// SPDX-License-Identifier: BSL-1.0
// What a file of the project says.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace texts {

namespace fs = std::filesystem;

inline std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file, path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace texts
