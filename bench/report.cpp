// SPDX-License-Identifier: BSL-1.0
// The table and the file that a run of the bench ends with.
#include "harness.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {
namespace {

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

void print_table(const std::vector<result>& results, std::ostream& out) {
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

  double load = 0;
  if (getloadavg(&load, 1) != 1) load = 0;
  out << "ratio: weft / peer. Medians over the rounds. Load average " << number(load) << ", "
      << cores().size() << " cores.\n";
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

void write_json(const std::vector<result>& results, const std::string& path) {
  auto list = nlohmann::json::array();
  for (const auto& r : results) {
    nlohmann::json entry{{"name", r.name}, {"unit", r.unit}, {"weft", nullptr}};
    entry["peers"] = nlohmann::json::object();
    for (const auto& c : r.cells) {
      auto& place = c.who == "weft" ? entry["weft"] : entry["peers"][c.who];
      place = has_value(c) ? nlohmann::json(c.median) : nlohmann::json(nullptr);
      if (!c.error.empty()) entry["errors"][c.who] = c.error;
    }
    list.push_back(std::move(entry));
  }
  const std::filesystem::path file(path);
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file);
  out << list.dump(2) << '\n';
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace bench
