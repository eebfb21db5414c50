// SPDX-License-Identifier: BSL-1.0
// What a worker tells the launcher of this machine about its run, over a pipe: lines
//
//   begins                         it has entered `run`
//   ends well                      `run` is about to return 0
//   ends <name> <why>              `run` is about to return 1, for what the worker <name> did; "?"
//                                  if nobody is to blame. Blanks in names are "%".
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/launch/launch_mark.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include <unistd.h>

namespace weft::engine {

/// A name as one word.
[[nodiscard]] inline std::string as_word(std::string name) {
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return c <= ' '; }, '%');
  return name.empty() ? "%" : name;
}

/// Silent where no launcher listens. Any thread; a line at a time.
class run_report {
 public:
  [[nodiscard]] static bool listens() { return pipe().has_value(); }
  static void begins() {
    if (const auto fd = pipe()) {
      // It reads a pipe, into which C's streams write only when they are full, or the process ends.
      // With a buffer of its own what was written before is written out.
      static char lines[BUFSIZ];
      std::setvbuf(stdout, lines, _IOLBF, sizeof lines);
      say(*fd, "begins");
    }
  }
  /// Once, before the process may end; `result` as `run` concludes it.
  static void ends(const std::string& self, const error& result) {
    const auto fd = pipe();
    if (!fd) return;
    if (!result) return say(*fd, "ends well");
    const std::string& other = result.detail().peer;
    const bool of_all = result == errc::rendezvous_failed || result == errc::duplicate_name;
    const bool own = result == errc::worker_failed || (other.empty() && !of_all);
    std::string why = result.detail().text.empty() ? result.message() : result.detail().text;
    std::replace(why.begin(), why.end(), '\n', ' ');
    say(*fd, "ends " +
                 (own             ? as_word(self)
                  : other.empty() ? "?"
                                  : as_word(other)) +
                 " " + why.substr(0, 1000));
  }

 private:
  static std::optional<int> pipe() { return given_descriptor("WEFT_REPORT_FD"); }
  static void say(int fd, std::string line) {
    line += '\n';
    [[maybe_unused]] const auto written = ::write(fd, line.data(), line.size());
  }
};

}  // namespace weft::engine
