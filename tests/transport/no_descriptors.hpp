// SPDX-License-Identifier: BSL-1.0
// A process that has no descriptors left.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

// Without descriptors UBSan, which asks pipe() whether memory is readable, reports what is not.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define WEFT_TEST_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WEFT_TEST_SANITIZED
#endif

namespace weft::testing {

/// Uses up all descriptors of the process until destroyed.
class no_descriptors {
 public:
  no_descriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = std::min<rlim_t>(before_.rlim_cur, 256);
    ::setrlimit(RLIMIT_NOFILE, &low);
    // bounded: by the limit above
    for (int fd; (fd = ::open("/dev/null", O_RDONLY)) >= 0;) open_.push_back(fd);
    REQUIRE_FALSE(open_.empty());
  }
  ~no_descriptors() {
    for (const int fd : open_) ::close(fd);
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  void give_back_one() {
    ::close(open_.back());
    open_.pop_back();
  }

 private:
  rlimit before_{};
  std::vector<int> open_;
};

}  // namespace weft::testing
