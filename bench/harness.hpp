// SPDX-License-Identifier: BSL-1.0
// The bench's rows, and how they are measured: interleaved rounds, medians, one table.
//
//   row  call.empty.tcp.p50   ──┐  subject weft ── figure "p50" of run "weft call.empty.tcp"
//   row  call.empty.tcp.p99   ──┤          raw  ── figure "p50" of run "raw tcp"
//                               └─ each run is executed once a round, whoever reads it
#pragma once

#include "process.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <memory>
#include <regex>
#include <string>
#include <vector>

namespace bench {

/// A measurement, executed in a process of its own; several rows may read it.
struct run {
  std::string name;
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

/// What came out for a subject: a median over the rounds, or an error if no round had a figure.
struct cell {
  std::string who;
  double median = 0;
  double spread = 0;  ///< (largest - smallest) / median
  std::string error;
};

struct result {
  std::string name;
  std::string unit;
  std::vector<cell> cells;
};

/// Runs what the rows whose name matches `filter` need, `rounds` times, each round starting at
/// another run, so that a slow minute does not fall on one subject. Progress goes to `log`.
std::vector<result> measure(const std::vector<row>& rows, const std::regex& filter,
                            std::size_t rounds, std::ostream& log);

/// One table: name, unit, weft, each peer, weft / peer. Errors stand below it.
void print_table(const std::vector<result>& results, std::ostream& out);

/// A list of {"name", "unit", "weft", "peers": {...}}; what failed is null and has its sentence in
/// "errors". Replaces the file, and makes its folder.
void write_json(const std::vector<result>& results, const std::string& path);

}  // namespace bench
