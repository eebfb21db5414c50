// SPDX-License-Identifier: BSL-1.0
// The bench's rows, and how they are measured: each run is a benchmark of Google Benchmark, in a
// process of its own; the table is made of its JSON.
//
//   row  call.empty.tcp.p50   ──┐  subject weft ── counter "p50" of "weft call.empty.tcp"
//   row  call.empty.tcp.p99   ──┤          raw  ── counter "p50" of "raw tcp"
//                               └─ each run is executed once a round, whoever reads it
#pragma once

#include "process.hpp"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

namespace bench {

/// A measurement, executed in a process of its own; several rows may read it.
struct run {
  std::string name;  ///< no other run's; without '/'
  placement where = placement::one_core;
  std::function<figures()> measure;
  std::chrono::seconds limit{60};
  std::size_t most_rounds = 1000;
};
using run_ptr = std::shared_ptr<const run>;

run_ptr make_run(run what);

/// One column of a row: a figure of a run, multiplied by `scale` into the row's unit.
struct subject {
  std::string who;  ///< "weft", or the peer's name
  run_ptr source;
  std::string figure;
  double scale = 1;
};

struct row {
  std::string name;
  std::string unit;
  std::vector<subject> subjects;
};

/// Registers what the rows need as benchmarks with manual time, repeated `rounds` times: their
/// counters are the figures, their time is the median latency, or that of one call.
void register_runs(const std::vector<row>& rows, std::size_t rounds);

/// One table: name, unit, weft, each peer, weft / peer: medians over the repetitions that are in
/// `report`, Google Benchmark's JSON. Errors stand below it.
void print_table(const std::vector<row>& rows, const nlohmann::json& report, std::ostream& out);

}  // namespace bench
