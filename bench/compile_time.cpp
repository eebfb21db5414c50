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

/// A folder that goes with this object.
class scratch {
 public:
  scratch() : path_((std::filesystem::temp_directory_path() / "weft-bench-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder");
  }
  scratch(const scratch&) = delete;
  ~scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// The compiler with its flags and these arguments: seconds.
double run_compiler(const std::string& arguments) {
  const std::string command =
      "CCACHE_DISABLE=1 " WEFT_BENCH_CXX " " WEFT_BENCH_CXX_FLAGS " " + arguments;
  const auto began = std::chrono::steady_clock::now();
  const int status = std::system(command.c_str());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (status != 0) throw std::runtime_error("this does not compile: " + arguments);
  return took.count();
}

}  // namespace

figures compile(const std::string& file, engine_is engine, knows before) {
  const auto sources = std::filesystem::path(WEFT_BENCH_SOURCE_DIR) / "compile";
  if (!std::filesystem::exists(sources / file)) throw std::runtime_error("no file " + file);
  const scratch folder;
  std::string flags = engine == engine_is::compiled ? "-DWEFT_SEPARATE_COMPILATION " : "";
  if (before == knows::precompiled) {
    // Clang and GCC both take <header>.gch for an -include of <header>.
    const std::string header = folder.path() + "/precompiled.hpp";
    std::filesystem::copy_file(sources / "precompiled.hpp", header);
    run_compiler(flags + WEFT_BENCH_PCH_FLAGS " -x c++-header " + quoted(header) + " -o " +
                 quoted(header + ".gch"));
    flags += "-Winvalid-pch -include " + quoted(header) + " ";
  }
  return {{"seconds", run_compiler(flags + "-c " + quoted((sources / file).string()) + " -o " +
                                   quoted(folder.path() + "/object.o"))}};
}

}  // namespace bench
