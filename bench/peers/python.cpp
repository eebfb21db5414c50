// SPDX-License-Identifier: BSL-1.0
#include "python.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <weft_bench_config.hpp>

namespace bench::python {

figures run(const std::string& file) {
  const std::string root = std::string(WEFT_BENCH_SOURCE_DIR) + "/..";
  const std::string command = "'" + root + "/dev' python --preset release '" +
                              WEFT_BENCH_SOURCE_DIR + "/peers/" + file + "' </dev/null";
  const auto close = [](std::FILE* f) { static_cast<void>(::pclose(f)); };
  const std::unique_ptr<std::FILE, decltype(close)> out(::popen(command.c_str(), "r"), close);
  if (!out) throw std::runtime_error("cannot start " + command);
  std::string text;
  std::array<char, 4096> chunk{};
  while (std::fgets(chunk.data(), chunk.size(), out.get()) != nullptr) text += chunk.data();
  const auto begin = text.rfind('{');
  if (begin == std::string::npos) throw std::runtime_error("no figures of " + file);
  return nlohmann::json::parse(text.substr(begin)).get<figures>();
}

}  // namespace bench::python
