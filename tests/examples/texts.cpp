// SPDX-License-Identifier: BSL-1.0
// README, the guide and the course show code that is compiled, and link to what exists.
#include "text_of.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace texts {

const fs::path root = WEFT_SOURCE_DIR;

std::vector<fs::path> pages() {
  std::vector<fs::path> out{root / "README.md", root / "examples/README.md"};
  for (const auto& entry : fs::directory_iterator(root / "examples/guide")) {
    if (entry.path().extension() == ".md") out.push_back(entry.path());
  }
  return out;
}

/// A page, apart: its prose, and its fenced blocks with what follows the fence (`cpp`, `sh`, ...).
struct page {
  struct block {
    std::string language;
    std::string text;
  };
  std::string prose;
  std::vector<block> blocks;

  explicit page(const fs::path& path) {
    std::istringstream lines(text_of(path));
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("```")) {
        inside = !inside;
        if (inside) blocks.push_back({line.substr(3), {}});
      } else {
        (inside ? blocks.back().text : prose) += line + '\n';
      }
    }
    CHECK_MESSAGE(!inside, "a fence is not closed in ", path.string());
  }
};

/// Every C++ file that is built.
std::vector<std::string> sources() {
  std::vector<std::string> out;
  for (const char* folder : {"examples", "tests", "include"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const auto kind = entry.path().extension();
      if (kind == ".cpp" || kind == ".hpp") out.push_back('\n' + text_of(entry.path()));
    }
  }
  return out;
}

TEST_CASE("texts: each block of C++ is part of a file that is compiled") {
  const auto all = sources();
  for (const fs::path& path : pages()) {
    CAPTURE(path.string());
    for (const page::block& b : page(path).blocks) {
      if (b.language != "cpp") continue;
      CAPTURE(b.text);
      CHECK(std::any_of(all.begin(), all.end(), [&](const std::string& source) {
        return source.find('\n' + b.text) != std::string::npos;
      }));
    }
  }
}

struct part {
  std::string title;
  std::string code;
};

/// The code between `// [title]` and `// [end]`.
std::vector<part> parts(const fs::path& path) {
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

TEST_CASE("texts: each part of the tour and of the election is shown, in ten lines at most") {
  std::set<std::string> shown;
  for (const fs::path& path : pages()) {
    for (const page::block& b : page(path).blocks) shown.insert(b.text);
  }
  for (const char* file : {"examples/tour.cpp", "examples/leader_election.cpp"}) {
    const std::vector<part> all = parts(root / file);
    CHECK(all.size() >= 2);
    for (const part& p : all) {
      CAPTURE(p.title);
      CHECK(shown.contains(p.code));
      if (std::string_view(file).ends_with("tour.cpp")) {
        CHECK(std::count(p.code.begin(), p.code.end(), '\n') <= 10);
      }
    }
  }
}

TEST_CASE("texts: the front page takes five minutes, each page of the guide as long") {
  for (const fs::path& path : pages()) {
    CAPTURE(path.string());
    if (path == root / "README.md") CHECK(fs::file_size(path) <= 12 * 1024);
    if (path.parent_path().filename() == "guide") CHECK(fs::file_size(path) <= 10 * 1024);
  }
}

/// As GitHub makes them of headings.
std::set<std::string> anchors(const page& of) {
  std::set<std::string> out;
  std::istringstream lines(of.prose);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('#')) continue;
    std::string name;
    for (const char c : line.substr(std::min(line.find(' '), line.size() - 1) + 1)) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (c == ' ' || c == '-' || c == '_') {
        name += c == ' ' ? '-' : c;
      }
    }
    out.insert(name);
  }
  return out;
}

TEST_CASE("texts: every link leads to a file or a heading that is there") {
  std::size_t seen = 0;
  for (const fs::path& path : pages()) {
    const page here(path);
    for (std::size_t at = 0; (at = here.prose.find("](", at)) != std::string::npos;) {
      at += 2;
      const std::string link = here.prose.substr(at, here.prose.find(')', at) - at);
      if (link.starts_with("http")) continue;
      ++seen;
      INFO(path.string(), " links to ", link);
      const std::string file = link.substr(0, link.find('#'));
      const fs::path to = file.empty() ? path : path.parent_path() / file;
      CHECK(fs::exists(to));
      if (const auto hash = link.find('#'); hash != std::string::npos && fs::exists(to)) {
        CHECK(anchors(page(to)).contains(link.substr(hash + 1)));
      }
    }
  }
  CHECK(seen > 50);
}

}  // namespace texts
