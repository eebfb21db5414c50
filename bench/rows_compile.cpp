// SPDX-License-Identifier: BSL-1.0
#include "compile_time.hpp"
#include "rows.hpp"

#include <string>
#include <vector>

namespace bench {
namespace {

run_ptr compile_run(const std::string& file) {
  return make_run({.name = "compile " + file,
                   .where = placement::two_cores,
                   .measure = [file] { return compile(file); },
                   .limit = std::chrono::seconds(400),
                   .most_rounds = 2});
}

}  // namespace

void add_compile_rows(std::vector<row>& rows) {
  const auto headers = compile_run("headers.cpp");
  rows.push_back(
      {"compile.one_call",
       "s",
       {{"weft", compile_run("one_call.cpp"), "seconds"}, {"headers", headers, "seconds"}}});
  rows.push_back({"compile.run",
                  "s",
                  {{"weft", compile_run("run.cpp"), "seconds"}, {"headers", headers, "seconds"}}});
}

}  // namespace bench
