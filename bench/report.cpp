// SPDX-License-Identifier: BSL-1.0
// The table that a run of the bench ends with.
#include "harness.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {
namespace {

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

constexpr std::string_view not_run = "not run";

/// A subject that failed in some rounds keeps its error beside the median of the others.
cell summarise(const subject& s, const nlohmann::json& report) {
  cell of{s.who, 0, 0, std::string(not_run)};
  std::vector<double> values;
  for (const auto& one : report.at("benchmarks")) {
    const auto name = one.at("run_name").get<std::string>();
    if (one.at("run_type") != "iteration" || name.substr(0, name.find('/')) != s.source->name) {
      continue;
    }
    if (of.error == not_run) of.error.clear();
    if (one.contains(s.figure)) {
      values.push_back(one.at(s.figure).get<double>() * s.scale);
    } else {
      of.error = one.value("error_message", "the run has no figure " + s.figure);
    }
  }
  if (values.empty()) return of;
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  of.median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  if (of.median > 0) of.spread = (values.back() - values.front()) / of.median;
  return of;
}

bool has_value(const cell& c) { return c.median != 0 || c.error.empty(); }

std::string number(double value) {
  char text[64];
  const int decimals = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : value >= 1 ? 3 : 4;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

const cell* find(const result& r, const std::string& who) {
  const auto found =
      std::find_if(r.cells.begin(), r.cells.end(), [&](const cell& c) { return c.who == who; });
  return found == r.cells.end() ? nullptr : &*found;
}

std::string text_of(const cell* c) {
  if (c == nullptr) return "-";
  return has_value(*c) ? number(c->median) : "error";
}

/// weft / peer for each peer; below 1 weft is faster, except in rates.
std::string ratios(const result& r) {
  const cell* weft = find(r, "weft");
  std::string text;
  for (const auto& c : r.cells) {
    if (weft == nullptr || !has_value(*weft)) break;
    if (c.who == "weft" || !has_value(c) || c.median <= 0) continue;
    char one[64];
    std::snprintf(one, sizeof one, "%.2f", weft->median / c.median);
    if (!text.empty()) text += ", ";
    text += one + (" " + c.who);
  }
  return text.empty() ? "-" : text;
}

std::vector<std::string> peers_of(const std::vector<result>& results) {
  std::vector<std::string> peers;
  for (const auto& r : results) {
    for (const auto& c : r.cells) {
      if (c.who == "weft" || std::find(peers.begin(), peers.end(), c.who) != peers.end()) continue;
      peers.push_back(c.who);
    }
  }
  return peers;
}

/// Columns as wide as their widest cell; counts characters, not bytes (units hold a µ).
void print_aligned(const std::vector<std::vector<std::string>>& lines, std::ostream& out) {
  const auto width = [](const std::string& s) {
    return static_cast<std::size_t>(
        std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  };
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width(line[i]));
  }
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string gap(widths[i] - width(line[i]), ' ');
      const bool is_number = i >= 2 && i + 1 < line.size();
      out << (i == 0 ? "" : "  ");
      if (i + 1 == line.size()) {
        out << line[i];
      } else {
        out << (is_number ? gap + line[i] : line[i] + gap);
      }
    }
    out << '\n';
  }
}

}  // namespace

void print_table(const std::vector<row>& rows, const nlohmann::json& report, std::ostream& out) {
  std::vector<result> results;
  for (const row& r : rows) {
    results.push_back({r.name, r.unit, {}});
    auto& cells = results.back().cells;
    for (const subject& s : r.subjects) {
      if (cell c = summarise(s, report); c.error != not_run) cells.push_back(std::move(c));
    }
    if (cells.empty()) results.pop_back();
  }
  if (results.empty()) throw std::runtime_error("none of the rows was measured");
  const auto peers = peers_of(results);
  std::vector<std::vector<std::string>> lines;
  lines.push_back({"name", "unit", "weft"});
  lines.back().insert(lines.back().end(), peers.begin(), peers.end());
  lines.back().emplace_back("ratio");
  for (const auto& r : results) {
    lines.push_back({r.name, r.unit, text_of(find(r, "weft"))});
    for (const auto& peer : peers) lines.back().push_back(text_of(find(r, peer)));
    lines.back().push_back(ratios(r));
  }
  print_aligned(lines, out);

  out << "ratio: weft / peer. Medians over the rounds.";
  const auto& context = report.at("context");
  if (const auto& load = context.at("load_avg"); !load.empty()) {
    out << " Load average at the start: " << number(load.front().get<double>()) << '.';
  }
  out << ' ' << cores().size() << " cores.\n";
  const cell* widest = nullptr;
  const result* of = nullptr;
  for (const auto& r : results) {
    for (const auto& c : r.cells) {
      if (!c.error.empty()) out << "error: " << r.name << ", " << c.who << ": " << c.error << '\n';
      if (widest == nullptr || c.spread > widest->spread) {
        widest = &c;
        of = &r;
      }
    }
  }
  if (widest != nullptr) {
    out << "Widest spread between rounds: " << number(100 * widest->spread) << " % (" << of->name
        << ", " << widest->who << ").\n";
  }
}

}  // namespace bench
