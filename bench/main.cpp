// SPDX-License-Identifier: BSL-1.0
// weft_bench: weft beside its peers, in one table. Placement: rows call.* and rref.* have both ends
// on one core (…2c: one on each), tensor.*, autograd.* and pipeline.* use two.
#include "harness.hpp"
#include "rows.hpp"
#include "weft_bench_config.hpp"  // written by CMake: WEFT_BENCH_OUT

#include <CLI/CLI.hpp>

#include <cstddef>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

namespace {

int run_bench(const std::string& filter, std::size_t rounds, const std::string& out) {
  std::vector<bench::row> rows;
  bench::add_call_rows(rows);
  bench::add_waiting_rows(rows);
  bench::add_tensor_rows(rows);
  bench::add_rref_rows(rows);
  bench::add_pipeline_rows(rows);
  bench::add_sim_rows(rows);
  bench::add_autograd_rows(rows);
  bench::add_compile_rows(rows);
  const auto results = bench::measure(rows, std::regex(filter), rounds, std::cerr);
  if (results.empty()) {
    std::cerr << "weft_bench: no row matches " << filter << '\n';
    return 1;
  }
  bench::print_table(results, std::cout);
  bench::write_json(results, out);
  std::cout << "Written: " << out << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("weft beside its peers, in one table");
  std::string filter = ".";
  std::size_t rounds = 5;
  std::string out = WEFT_BENCH_OUT "/bench.json";
  app.add_option("--filter", filter, "rows whose name has a match of this regular expression");
  app.add_option("--rounds", rounds, "interleaved rounds; the table shows medians over them")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--out", out, "where the table is written as JSON")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return run_bench(filter, rounds, out);
  } catch (const std::exception& e) {
    std::cerr << "weft_bench: " << e.what() << '\n';
    return 1;
  }
}
