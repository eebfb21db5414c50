// SPDX-License-Identifier: BSL-1.0
// What is said of a world that breaks something.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <sim/play.hpp>
#include <sim/tool/tell.hpp>
#include <sstream>
#include <string>

namespace sim_tell {

using namespace std::chrono_literals;
using namespace weft::testing;

/// Breaks a rule where three of its choices are others than the plain ones.
class broken_script final : public script {
 public:
  explicit broken_script(witness& sees) : sees_(sees) {}
  asio::awaitable<void> main(weft::worker& me) override {
    for (int i = 0; i < 20; ++i) {
      co_await weft::testing::sleep_for(me, 1ms);
      if (draw(4) != 3) continue;
      sees_.world.tell(me.rank(), "draws a three");
      if (++threes_ == 3) sees_.complain("a third three");
    }
  }
  counts count() const override { return {}; }

 private:
  witness& sees_;
  int threes_ = 0;
};

constexpr program broken{
    "broken", [] { return weft::engine::service_makers(); },
    [](witness& sees) -> std::unique_ptr<script> { return std::make_unique<broken_script>(sees); }};

std::uint64_t times(const std::string& what, const std::string& in) {
  std::uint64_t n = 0;
  for (auto at = in.find(what); at != std::string::npos; at = in.find(what, at + 1)) ++n;
  return n;
}

TEST_CASE("tell: a seed that breaks something, and the story of the least that still does") {
  to_play p{.seed = 5, .how = profile::brutal, .what = broken};
  const played first = play(p);
  REQUIRE(first.broken == std::vector<std::string>{"a third three"});
  std::ostringstream out;
  tell(out, p, first);
  const std::string said = out.str();
  CAPTURE(said);
  CHECK(said.starts_with("seed 5 (--profile brutal --program broken --workers 3) breaks:\n"
                         "  a third three\n"));
  const std::string before = "its smallest record has ";
  const auto at = said.find(before);
  REQUIRE(at != std::string::npos);
  const int choices = std::stoi(said.substr(at + before.size()));
  CHECK(choices >= 3);
  CHECK(choices < 20);  // of thousands; what is chosen behind one depends on it
  CHECK(times("a third three", said) == 2);
  CHECK(times("draws a three", said) == 3);
  CHECK(times("its run has ended", said) == 3);
  CHECK(times("crash", said) == 0);
}

}  // namespace sim_tell
