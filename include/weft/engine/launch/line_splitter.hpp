// SPDX-License-Identifier: BSL-1.0
// Lines out of the output of a process.
#pragma once

#include <weft/engine/fwd.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::engine {

/// Lines out of what comes in pieces. A bar that is redrawn without a line's end keeps its last
/// state only; what else has no end is cut.
class line_splitter {
 public:
  static constexpr std::size_t longest = 64 * 1024;

  template <class Print>
  void add(std::string_view text, Print&& print) {
    for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos;
         text.remove_prefix(end + 1)) {
      partial_ += text.substr(0, end);
      print(std::string_view(partial_));
      partial_.clear();
    }
    partial_ += text;
    if (partial_.size() <= longest) return;
    if (const std::size_t redrawn = partial_.rfind('\r'); redrawn != std::string::npos) {
      partial_.erase(0, redrawn);
    }
    if (partial_.size() > longest) finish(print);
  }
  template <class Print>
  void finish(Print&& print) {
    if (!partial_.empty()) print(std::string_view(partial_));
    partial_.clear();
  }
  [[nodiscard]] std::size_t held() const noexcept { return partial_.size(); }

 private:
  std::string partial_;
};

}  // namespace weft::engine
