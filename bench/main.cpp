// SPDX-License-Identifier: BSL-1.0
// weft_bench: weft beside its peers, in one table. Placement: rows call.* and rref.* have both ends
// on one core (…2c: one on each), tensor.*, autograd.* and pipeline.* use two.
#include "harness.hpp"
#include "rows.hpp"
#include "weft_bench_config.hpp"  // written by CMake: WEFT_BENCH_OUT

#include <CLI/CLI.hpp>
#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

std::vector<bench::row> rows_that_match(const std::string& filter) {
  std::vector<bench::row> rows;
  bench::add_call_rows(rows);
  bench::add_waiting_rows(rows);
  bench::add_tensor_rows(rows);
  bench::add_rref_rows(rows);
  bench::add_pipeline_rows(rows);
  bench::add_stream_rows(rows);
  bench::add_sim_rows(rows);
  bench::add_autograd_rows(rows);
  bench::add_gradient_rows(rows);
  bench::add_tensordict_rows(rows);
  bench::add_compile_rows(rows);
  const std::regex wanted(filter);
  std::erase_if(rows, [&](const auto& r) { return !std::regex_search(r.name, wanted); });
  if (rows.empty()) throw std::runtime_error("no row matches " + filter);
  return rows;
}

/// Progress is told run by run, and the table says the rest.
struct silent : benchmark::BenchmarkReporter {
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

nlohmann::json read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // JSON has no such number, which a benchmark without a time or a variation gets.
  return nlohmann::json::parse(
      std::regex_replace(text, std::regex(": -?(NaN|nan|Infinity|inf)"), ": null"));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("weft beside its peers, in one table");
  std::string filter = ".";
  std::size_t rounds = 5;
  std::string out = WEFT_BENCH_OUT "/bench.json";
  std::string table;
  app.add_option("--filter", filter, "rows whose name has a match of this regular expression");
  app.add_option("--rounds", rounds, "repetitions of each run, in random order")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--out", out, "where Google Benchmark writes its JSON")->capture_default_str();
  app.add_option("--table", table, "measure nothing: print the table of such a file");
  app.allow_extras();
  app.footer("Options that begin with --benchmark_ are Google Benchmark's.");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto rows = rows_that_match(filter);
    if (!table.empty()) {
      bench::print_table(rows, read(table), std::cout);
      return 0;
    }
    std::filesystem::create_directories(std::filesystem::absolute(out).parent_path());
    const std::string fresh = out + ".new";  // the last results stay until there are others
    std::vector<std::string> words{argv[0], "--benchmark_enable_random_interleaving=true"};
    for (const std::string& rest : app.remaining()) {
      if (rest.starts_with("--benchmark_out")) {
        throw std::runtime_error("--out says where the JSON is written");
      }
      words.push_back(rest);
    }
    words.insert(words.end(), {"--benchmark_out_format=json", "--benchmark_out=" + fresh,
                               "--benchmark_report_aggregates_only=false"});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    int count = static_cast<int>(arguments.size());
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
    bench::register_runs(rows, rounds);
    silent quiet;
    const std::size_t ran = benchmark::RunSpecifiedBenchmarks(&quiet);
    benchmark::Shutdown();
    if (ran == 0 || std::filesystem::is_empty(fresh)) {  // it has said why, or only listed them
      std::filesystem::remove(fresh);
      return ran == 0 ? 1 : 0;
    }
    std::filesystem::rename(fresh, out);
    bench::print_table(rows, read(out), std::cout);
    std::cout << "Written: " << out << '\n';
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "weft_bench: " << e.what() << '\n';
    return 1;
  }
}
