// SPDX-License-Identifier: BSL-1.0
// `./dev sim`: random programs in random worlds, one for each seed.
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <map>
#include <sim/play.hpp>
#include <sim/tool/tell.hpp>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace weft::testing {

/// Which seed it was that ended the process, or that it was ended in.
class dying_words {
 public:
  dying_words() {
    for (const int s : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM}) std::signal(s, &say);
  }
  static inline volatile std::uint64_t now = 0;

 private:
  static void say(int why) {
    char words[64] = "ended in seed   ";
    char* const end = std::to_chars(words + 16, words + 60, std::uint64_t{now}).ptr;
    *end = '\n';
    if (write(STDOUT_FILENO, words, static_cast<std::size_t>(end + 1 - words)) < 0) std::_Exit(1);
    std::signal(why, SIG_DFL);
    std::raise(why);
  }
};

/// The tool's main, with the programs that it has.
inline int sim_tool(int argc, char** argv, const std::vector<program>& all) {
  CLI::App app("Random programs in random worlds, one for each seed.");
  std::uint64_t seeds = 10'000;
  std::uint64_t from = 0;
  to_play p{.what = all.front()};
  std::uint64_t only = 0;
  app.add_option("--seeds", seeds, "number of seeds")->capture_default_str();
  double seconds = 0;
  app.add_option("--seconds", seconds, "stop after this time, even if seeds are left; 0: no limit");
  app.add_option("--from", from, "the first seed")->capture_default_str();
  auto* const one = app.add_option("--seed", only, "run only this seed, and print its story");
  bool first = false;
  app.add_flag("--first", first,
               "stop at the first seed that breaks something, and do not shrink it");
  app.add_option("--workers", p.workers, "workers in each world")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  const std::map<std::string, profile> profiles{{"calm", profile::calm},
                                                {"brutal", profile::brutal}};
  app.add_option("--profile", p.how, "what may go wrong: calm (only delays) or brutal")
      ->transform(CLI::CheckedTransformer(profiles));
  std::vector<std::string> names;
  for (const program& each : all) names.emplace_back(each.name);
  std::string what = p.what.name;
  app.add_option(
         "--program", what,
         "what the workers do; ./dev sim also offers `gradients`, in a program with libtorch")
      ->check(CLI::IsMember(names));
  CLI11_PARSE(app, argc, argv);
  for (const program& each : all) {
    if (what == each.name) p.what = each;
  }
  if (one->count() > 0) {
    p.seed = only;
    p.story = true;
    const played out = play(p);
    std::cout << out.story << "hash " << std::hex << out.hash << std::dec << '\n';
    if (!out.broken.empty()) tell(std::cout, p, out);
    return out.broken.empty() ? 0 : 1;
  }
  const dying_words when_it_crashes;
  std::cerr.setstate(std::ios::badbit);  // what the workers tell their users
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t failed = 0, steps = 0;
  std::map<std::string, std::uint64_t> counted;
  double virtual_seconds = 0;
  const auto took = [begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (p.seed = from; p.seed < from + seeds; ++p.seed) {
    if (seconds > 0 && took() > seconds) {
      seeds = p.seed - from;
      break;
    }
    dying_words::now = p.seed;
    const played out = play(p);
    steps += out.steps;
    for (const auto& [what_it_was, number] : out.counted) counted[what_it_was] += number;
    virtual_seconds += out.virtual_seconds;
    if (out.broken.empty()) continue;
    if (first) {
      std::cout << "broken after " << p.seed - from + 1 << " seeds: " << out.broken.front() << '\n';
      return 1;
    }
    if (++failed <= 3) tell(std::cout, p, out);
  }
  std::cout << std::fixed << std::setprecision(0) << seeds << " seeds, " << failed << " failed; "
            << steps << " steps, ";
  for (const auto& [what_it_was, number] : counted) {
    std::cout << number << ' ' << what_it_was << ", ";
  }
  std::cout << virtual_seconds << " s of virtual time in " << std::setprecision(1) << took()
            << " s, " << std::setprecision(0) << static_cast<double>(seeds) / took()
            << " seeds/s\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace weft::testing
