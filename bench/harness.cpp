// SPDX-License-Identifier: BSL-1.0
#include "harness.hpp"

#include <algorithm>
#include <iomanip>
#include <iterator>
#include <ostream>
#include <utility>

namespace bench {
namespace {

/// Distinct runs of the rows, in the order of first use: subjects of one row are neighbours.
std::vector<run_ptr> distinct_runs(const std::vector<row>& rows) {
  std::vector<run_ptr> runs;
  for (const auto& r : rows) {
    for (const auto& s : r.subjects) {
      if (std::find(runs.begin(), runs.end(), s.source) == runs.end()) runs.push_back(s.source);
    }
  }
  return runs;
}

cell summarise(const subject& s, const std::vector<outcome>& outcomes) {
  cell result{s.who, 0, 0, {}};
  std::vector<double> values;
  for (const auto& o : outcomes) {
    const auto found = o.values.find(s.figure);
    if (found != o.values.end()) {
      values.push_back(found->second * s.scale);
    } else {
      result.error = o.error.empty() ? "the run has no figure " + s.figure : o.error;
    }
  }
  if (values.empty()) {
    if (result.error.empty()) result.error = "not run";
    return result;
  }
  // A subject that failed in some rounds keeps its error beside the median of the others.
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  result.median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  if (result.median > 0) result.spread = (values.back() - values.front()) / result.median;
  return result;
}

}  // namespace

run_ptr make_run(run what) { return std::make_shared<const run>(std::move(what)); }

std::vector<result> measure(const std::vector<row>& rows, const std::regex& filter,
                            std::size_t rounds, std::ostream& log) {
  std::vector<row> wanted;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(wanted),
               [&](const row& r) { return std::regex_search(r.name, filter); });
  const auto runs = distinct_runs(wanted);
  std::vector<std::vector<outcome>> outcomes(runs.size());
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto index = (i + round) % runs.size();
      const run& current = *runs[index];
      if (round >= current.most_rounds) continue;
      log << "round " << round + 1 << '/' << rounds << "  " << i + 1 << '/' << runs.size() << "  "
          << current.name << std::flush;
      const auto began = std::chrono::steady_clock::now();
      outcomes[index].push_back(run_apart(current.where, current.limit, current.measure));
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      log << "  " << std::fixed << std::setprecision(1) << took.count() << " s";
      const auto& error = outcomes[index].back().error;
      if (!error.empty()) log << "  failed: " << error;
      log << std::endl;
    }
  }
  std::vector<result> results;
  for (const auto& r : wanted) {
    result one{r.name, r.unit, {}};
    for (const auto& s : r.subjects) {
      const auto at = std::find(runs.begin(), runs.end(), s.source) - runs.begin();
      one.cells.push_back(summarise(s, outcomes[static_cast<std::size_t>(at)]));
    }
    results.push_back(std::move(one));
  }
  return results;
}

}  // namespace bench
