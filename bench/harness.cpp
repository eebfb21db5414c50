// SPDX-License-Identifier: BSL-1.0
#include "harness.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace bench {
namespace {

/// What Google Benchmark shows as the time of a run.
double seconds_of(const figures& of) {
  if (const auto p50 = of.find("p50"); p50 != of.end()) return p50->second * 1e-6;
  if (const auto rate = of.find("rate"); rate != of.end() && rate->second > 0) {
    return 1 / rate->second;
  }
  if (const auto seconds = of.find("seconds"); seconds != of.end()) return seconds->second;
  return 0;
}

std::size_t executed = 0;
std::size_t registered = 0;  // with their repetitions

void execute(benchmark::State& state, const run& what) {
  for (auto _ : state) {
    std::cerr << ++executed << '/' << registered << "  " << what.name << std::flush;
    const auto began = std::chrono::steady_clock::now();
    const outcome came = run_apart(what.where, what.limit, what.measure);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::cerr << "  " << std::fixed << std::setprecision(1) << took.count() << " s"
              << (came.error.empty() ? "" : "  failed: " + came.error) << std::endl;
    if (!came.error.empty()) {
      state.SkipWithError(came.error.c_str());
      break;
    }
    state.SetIterationTime(seconds_of(came.values));
    for (const auto& [name, value] : came.values) state.counters[name] = value;
  }
}

}  // namespace

run_ptr make_run(run what) { return std::make_shared<const run>(std::move(what)); }

void register_runs(const std::vector<row>& rows, std::size_t rounds) {
  std::set<run_ptr> known;
  std::set<std::string> names;
  for (const row& r : rows) {
    for (const subject& s : r.subjects) {
      if (!known.insert(s.source).second) continue;
      if (!names.insert(s.source->name).second) {
        throw std::logic_error("two runs have the name " + s.source->name);
      }
      const std::size_t repetitions = std::min(rounds, s.source->most_rounds);
      registered += repetitions;
      benchmark::RegisterBenchmark(s.source->name.c_str(),
                                   [of = s.source](benchmark::State& st) { execute(st, *of); })
          ->Iterations(1)
          ->Repetitions(static_cast<int>(repetitions))
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace bench
