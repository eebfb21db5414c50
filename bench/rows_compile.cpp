// SPDX-License-Identifier: BSL-1.0
#include "compile_time.hpp"
#include "rows.hpp"

#include <string>
#include <vector>

namespace bench {
namespace {

run_ptr compile_run(const std::string& file, engine_is engine = engine_is::in_headers,
                    knows before = knows::nothing) {
  std::string name = "compile " + file;
  if (engine == engine_is::compiled) name += ", engine compiled";
  if (before == knows::precompiled) name += ", precompiled header";
  return make_run({.name = name,
                   .where = placement::two_cores,
                   .measure = [=] { return compile(file, engine, before); },
                   .limit = std::chrono::seconds(400),
                   .most_rounds = 5});
}

}  // namespace

void add_compile_rows(std::vector<row>& rows) {
  // Without weft: a coroutine that does the work in place.
  const auto plain = compile_run("one_call_plain.cpp");
  const auto add = [&](const std::string& name, const run_ptr& weft, const run_ptr& without) {
    rows.push_back({name, "s", {{"weft", weft, "seconds"}, {"plain", without, "seconds"}}});
  };
  const auto lean_plain = compile_run("lean_call_plain.cpp");
  const auto compiled = engine_is::compiled;  // as weft::weft has it
  add("compile.one_call", compile_run("one_call.cpp", compiled), plain);
  add("compile.one_call.header_only", compile_run("one_call.cpp"), plain);
  add("compile.lean_call", compile_run("lean_call.cpp", compiled), lean_plain);
  add("compile.call", compile_run("call.cpp", compiled), lean_plain);
  add("compile.run", compile_run("run.cpp"), plain);
  add("compile.run.compiled", compile_run("run.cpp", compiled), plain);
  add("compile.one_call.pch", compile_run("one_call.cpp", compiled, knows::precompiled), plain);
  add("compile.run.compiled.pch", compile_run("run.cpp", compiled, knows::precompiled), plain);

  rows.push_back({"compile.tensordict",
                  "s",
                  {{"weft", compile_run("tensordict_call.cpp", compiled), "seconds"},
                   {"one_call", compile_run("one_call.cpp", compiled), "seconds"}}});

  const auto first = make_run({.name = "compile README's first program",
                               .where = placement::two_cores,
                               .measure = [] { return first_program(); },
                               .limit = std::chrono::seconds(400),
                               .most_rounds = 3});
  rows.push_back({"compile.first", "s", {{"weft", first, "seconds"}}});
  rows.push_back(
      {"compile.first.again", "s", {{"weft", first, "again"}, {"plain", first, "plain"}}});
}

}  // namespace bench
