// SPDX-License-Identifier: BSL-1.0
#include "compile_time.hpp"

#include "weft_bench_config.hpp"  // written by CMake: WEFT_BENCH_CXX, ..._CXX_FLAGS, ..._SOURCE_DIR

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

#include <stdlib.h>
#include <sys/wait.h>

namespace bench {
namespace {

/// As one word for the shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

figures compile(const std::string& file) {
  const auto source = std::filesystem::path(WEFT_BENCH_SOURCE_DIR) / "compile" / file;
  if (!std::filesystem::exists(source)) throw std::runtime_error("no file " + source.string());
  auto folder = (std::filesystem::temp_directory_path() / "weft-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make a folder");
  const std::string command = "CCACHE_DISABLE=1 " WEFT_BENCH_CXX " " WEFT_BENCH_CXX_FLAGS " -c " +
                              quoted(source.string()) + " -o " + quoted(folder + "/object.o");
  const auto began = std::chrono::steady_clock::now();
  const int status = std::system(command.c_str());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (status != 0) throw std::runtime_error(source.filename().string() + " does not compile");
  return {{"seconds", took.count()}};
}

}  // namespace bench
