// SPDX-License-Identifier: BSL-1.0
// What a run asks of the limit of open files.
#include <weft/engine/launch/descriptor_limit.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace descriptors {

/// Sets the soft limit while it lives.
class soft_limit {
 public:
  explicit soft_limit(std::size_t files) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    ::rlimit now = before_;
    now.rlim_cur = files;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &now) == 0);
  }
  soft_limit(const soft_limit&) = delete;
  soft_limit& operator=(const soft_limit&) = delete;
  ~soft_limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  [[nodiscard]] static std::size_t now() {
    ::rlimit is{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &is) == 0);
    return is.rlim_cur;
  }

 private:
  ::rlimit before_{};
};

/// How many files can still be opened, up to `most`.
std::size_t can_open(std::size_t most) {
  std::vector<int> open;
  while (open.size() < most) {  // bounded: by `most`, and by what cannot be opened
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) break;
    open.push_back(fd);
  }
  for (const int fd : open) ::close(fd);
  return open.size();
}

TEST_CASE("descriptors: beside what is needed some are spare, or the run does not begin") {
  constexpr std::size_t need = 20;
  const std::size_t before = weft::engine::open_descriptors();
  std::size_t opened = 0;
  std::size_t limit = 0;
  {
    const soft_limit tight(before + 5);
    weft::engine::need_descriptors(need, "a test");
    opened = can_open(need + 100);
    limit = soft_limit::now();
  }
  CHECK(opened >= need + 2);          // a pipe: what a sanitizer wants, to look at an object
  CHECK(limit <= before + need + 8);  // not many more
}

TEST_CASE("descriptors: numbers of workers and threads do not overflow") {
  using weft::engine::descriptors_of_worker;
  constexpr std::size_t most = 0xffff'ffff;
  CHECK(descriptors_of_worker(0, 0xffff'ffff, 1) > 2 * most);
  CHECK(descriptors_of_worker(1, 0xffff'ffff, 1) > most);
  CHECK(descriptors_of_worker(0, 1, 0xffff'ffff) > 3 * most);
  // Without I/O threads there is a guard, which has a context as well.
  CHECK(descriptors_of_worker(0, 1, 0) == descriptors_of_worker(0, 1, 1));
}

}  // namespace descriptors
