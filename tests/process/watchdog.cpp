// SPDX-License-Identifier: BSL-1.0
// The watchdog of all tests, watched: this program is started once more, for a test that hangs.
#include <doctest/doctest.h>

#include <process/child.hpp>
#include <string>
#include <thread>
#include <watchdog.hpp>

#include <signal.h>

namespace watched_tests {

using weft::testing::child;

[[gnu::noinline]] void hang_elsewhere() { std::this_thread::sleep_for(child::patience); }
[[gnu::noinline]] void hang_here() {
  std::thread other(hang_elsewhere);
  std::this_thread::sleep_for(child::patience);
  other.join();
}

TEST_CASE("watchdog, below: hangs" * doctest::skip()) {
  const weft::testing::test_part part("the second variant");
  CAPTURE(child::patience.count());
  hang_here();
}
TEST_CASE("watchdog, below: is slow" * doctest::skip()) {
  for (int i = 0; i < 80; ++i) {  // longer than its patience, twice that for a sanitizer
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(i < 80);  // progress
  }
}

TEST_CASE("watchdog: a test that hangs is ended, and it is said where all of its threads are") {
  child hangs({"/proc/self/exe", "--no-skip", "--test-case=watchdog*below: hangs"},
              {{"WEFT_TEST_PATIENCE", "2"}});
  const int status = hangs.wait();
  INFO(hangs.output());
  CHECK(status == 128 + SIGABRT);
  CHECK(hangs.said("the test hangs: watchdog, below: hangs"));
  CHECK(hangs.said("in the second variant"));
  CHECK(hangs.said("child::patience.count() := 120"));
  CHECK(hangs.said("(main):"));
  // Without the tool that knows the functions' names, where they are.
  const bool named = hangs.said("hang_here") && hangs.said("hang_elsewhere");
  CHECK((named || hangs.said("    +0x")));
}

TEST_CASE("watchdog: a test that is slow, but gets on, is left alone" *
          doctest::test_suite("all")) {
  child slow({"/proc/self/exe", "--no-skip", "--test-case=watchdog*below: is slow"},
             {{"WEFT_TEST_PATIENCE", "2"}});
  const int status = slow.wait();
  INFO(slow.output());
  CHECK(status == 0);
  CHECK(slow.said("80 passed"));
}

}  // namespace watched_tests
