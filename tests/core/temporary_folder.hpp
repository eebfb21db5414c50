// SPDX-License-Identifier: BSL-1.0
// A folder of a test's own, gone at its end.
#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include <stdlib.h>  // mkdtemp

namespace weft::testing {

struct temporary_folder {
  temporary_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no folder " + name);
    root = name;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }

  [[nodiscard]] bool empty() const { return std::filesystem::is_empty(root); }
  /// Whether one of the files in it, or below, has a line that begins so.
  [[nodiscard]] bool says(const std::string& beginning) const {
    std::error_code ec;  // they come and go
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root, ec)) {
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {  // bounded: by the file
        if (line.starts_with(beginning)) return true;
      }
    }
    return false;
  }

  std::filesystem::path root;
};

}  // namespace weft::testing
