// SPDX-License-Identifier: BSL-1.0
#include "compile_time.hpp"

#include "weft_bench_config.hpp"  // written by CMake: WEFT_BENCH_CXX, ..._CXX_FLAGS, ..._SOURCE_DIR

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
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

/// Seconds.
double run_shell(const std::string& command) {
  const auto began = std::chrono::steady_clock::now();
  const int status = std::system(("export CCACHE_DISABLE=1; " + command).c_str());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (status != 0) throw std::runtime_error("this fails: " + command);
  return took.count();
}
/// The compiler with its flags and these arguments.
double run_compiler(const std::string& arguments) {
  return run_shell(WEFT_BENCH_CXX " " WEFT_BENCH_CXX_FLAGS " " + arguments);
}

/// The CMakeLists.txt in README, with weft in a folder beside it.
std::string readme_cmake(const std::filesystem::path& readme) {
  std::ifstream file(readme);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string fence = "```cmake\n";
  const auto from = text.find(fence);
  if (from == std::string::npos) throw std::runtime_error("README.md has no CMake lines");
  const auto begin = from + fence.size();
  std::string lines = text.substr(begin, text.find("```", begin) - begin);
  const auto at = lines.find("find_package(weft");
  return lines.replace(at, lines.find('\n', at) - at, "add_subdirectory(weft)");
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

figures first_program() {
  namespace fs = std::filesystem;
  const fs::path bench = WEFT_BENCH_SOURCE_DIR;
  const fs::path root = bench.parent_path();
  const scratch folder;
  const fs::path app = folder.path() + "/app";
  fs::create_directory(app);
  fs::create_directory_symlink(root, app / "weft");
  fs::copy_file(root / "examples/call_rank1.cpp", app / "main.cpp");
  fs::copy_file(bench / "compile/first_plain.cpp", app / "plain.cpp");
  std::ofstream(app / "CMakeLists.txt")
      << readme_cmake(root / "README.md") << "add_executable(plain EXCLUDE_FROM_ALL plain.cpp)\n"
      << "target_link_libraries(plain PRIVATE weft::headers weft::torch)\n";
  const std::string build = quoted(folder.path() + "/build");
  const auto make = [&](const std::string& target) {
    return run_shell("cmake --build " + build + " --parallel 2 --target " + target + " >/dev/null");
  };
  const auto touch = [&](const char* file) {
    fs::last_write_time(app / file, fs::file_time_type::clock::now());
  };
  const double configured = run_shell("cmake -S " + quoted(app.string()) + " -B " + build +
                                      " -DCMAKE_CXX_COMPILER=" WEFT_BENCH_CXX
                                      " -DWEFT_TORCH_DIR=" WEFT_BENCH_TORCH_DIR " >/dev/null");
  const double built = make("app");
  make("plain");
  touch("main.cpp");
  const double again = make("app");
  touch("plain.cpp");
  return {{"seconds", configured + built}, {"again", again}, {"plain", make("plain")}};
}

}  // namespace bench
