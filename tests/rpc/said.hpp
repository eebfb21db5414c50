// SPDX-License-Identifier: BSL-1.0
// What workers of this process say on standard error.
#pragma once

#include <cstddef>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>

namespace weft::testing {

/// Takes what is written to std::cerr while it lives. Any thread writes.
class said final : std::streambuf {
 public:
  said() : before_(std::cerr.rdbuf(this)) {}
  said(const said&) = delete;
  said& operator=(const said&) = delete;
  ~said() override { std::cerr.rdbuf(before_); }

  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  [[nodiscard]] std::size_t times(const std::string& what) const {
    const std::string all = text();
    std::size_t n = 0;
    for (auto at = all.find(what); at != std::string::npos; at = all.find(what, at + 1)) ++n;
    return n;
  }

 private:
  std::streamsize xsputn(const char* s, std::streamsize n) override {
    const std::lock_guard lock(mutex_);
    text_.append(s, static_cast<std::size_t>(n));
    return n;
  }
  int_type overflow(int_type c) override {
    const std::lock_guard lock(mutex_);
    text_ += traits_type::to_char_type(c);
    return c;
  }

  std::streambuf* const before_;
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace weft::testing
