// SPDX-License-Identifier: BSL-1.0
#include "console.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <sys/ioctl.h>
#include <unistd.h>

namespace digits {
namespace {

constexpr std::string_view clear_line = "\r\x1b[2K";

std::string print(const char* format, auto... values) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string minutes(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(seconds));
  if (whole >= 3600) return print("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return print("%lld:%02lld", whole / 60, whole % 60);
}

}  // namespace

std::string progress_line(const progress& state, std::size_t width) {
  const double total = static_cast<double>(std::max<std::int64_t>(state.total, 1));
  const double part = std::clamp(static_cast<double>(state.done) / total, 0.0, 1.0);
  const auto before = print("epoch %d/%d ", state.epoch, state.epochs);
  auto after = print(" %3.0f%%  loss %.4f", std::floor(part * 100), state.loss);
  if (state.samples_per_second > 0) {
    const double left = static_cast<double>(std::max<std::int64_t>(state.total - state.done, 0));
    if (state.items_per_second > 0) after += print("  %.0f items/s", state.items_per_second);
    after += print("  %.0f samples/s  ETA ", state.samples_per_second) +
             minutes(left / state.samples_per_second);
  }
  std::string bar;
  if (const auto text = before.size() + after.size() + 2; width >= text + 10) {
    const auto cells = std::min<std::size_t>(width - text, 30);
    const auto full = static_cast<std::size_t>(part * static_cast<double>(cells));
    bar = "[" + std::string(full, '#') + std::string(cells - full, '-') + "]";
  }
  return (before + bar + after).substr(0, width);
}

console::console(std::FILE* out, console_style style)
    : out_(out),
      is_terminal_(style == console_style::terminal ||
                   (style == console_style::detect && ::isatty(::fileno(out)) == 1)) {}

console::~console() { clear(); }

void console::log(std::string_view who, std::string_view text) {
  std::string line;
  if (!who.empty()) line.append("[").append(who).append("] ");
  line.append(text);
  const std::scoped_lock lock(mutex_);
  if (is_terminal_) {
    line.insert(0, clear_line);
    line.append("\n").append(bar_);
  } else {
    line.append("\n");
  }
  write(line);
}

void console::show(const progress& state, clock::time_point now) {
  const std::scoped_lock lock(mutex_);
  if (now < next_) return;
  if (is_terminal_) {
    next_ = now + redraw_interval;
    bar_ = progress_line(state, width());
    write(std::string(clear_line) + bar_);
  } else if (next_ == clock::time_point{}) {
    next_ = now + plain_interval;  // nothing is worth a line at the very beginning
  } else {
    next_ = now + plain_interval;
    write(progress_line(state, 120) + "\n");
  }
}

void console::clear() {
  const std::scoped_lock lock(mutex_);
  if (!bar_.empty()) write(std::string(clear_line));
  bar_.clear();
}

void console::write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

std::size_t console::width() const {
  winsize size{};
  if (::ioctl(::fileno(out_), TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 79;
  return size.ws_col - 1U;  // the last column stays free, or some terminals wrap
}

}  // namespace digits
