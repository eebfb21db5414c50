// SPDX-License-Identifier: BSL-1.0
#pragma once
// One log with prefixes above one progress bar.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace digits {

struct progress {
  int epoch = 0;  // from 1 to epochs
  int epochs = 0;
  std::int64_t done = 0;  // samples trained on
  std::int64_t total = 0;
  double loss = 0;
  double samples_per_second = 0;  // 0: not known yet
  double items_per_second = 0;    // of streams; 0: there are none
};

// "epoch 3/30 [###-------] 31%  loss 0.1234  4567 samples/s  ETA 0:09", at most `width` characters.
std::string progress_line(const progress& state, std::size_t width);

enum class console_style {
  detect,    // terminal where the file is one, else plain
  terminal,  // the bar stays at the bottom and is redrawn in place
  plain,     // the progress is a line every plain_interval
};

// May be used from any thread. On a terminal every line is written, in one write, as "clear this
// line, text, newline", and the bar as "clear this line, text": so another process may write such
// lines too, and the bar is back with the next progress.
class console {
 public:
  using clock = std::chrono::steady_clock;
  static constexpr auto redraw_interval = std::chrono::milliseconds(100);
  static constexpr auto plain_interval = std::chrono::seconds(5);

  // Does not close the file.
  explicit console(std::FILE* out, console_style style = console_style::detect);
  ~console();

  // "[who] text"; without a prefix where `who` is empty.
  void log(std::string_view who, std::string_view text);

  // Shows the state, no more often than the interval of the style.
  void show(const progress& state, clock::time_point now = clock::now());

  // Takes the bar away: what follows is plain output.
  void clear();

 private:
  void write(const std::string& text);
  std::size_t width() const;

  std::mutex mutex_;
  std::FILE* out_;
  bool is_terminal_;
  std::string bar_;  // what stands at the bottom now
  clock::time_point next_{};
};

}  // namespace digits
