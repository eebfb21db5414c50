// SPDX-License-Identifier: BSL-1.0
#include <weft/core/log.hpp>

#include <doctest/doctest.h>

#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace core_log {

/// Takes standard error while it lives.
struct taken {
  std::ostringstream text;
  std::streambuf* const before = std::cerr.rdbuf(text.rdbuf());
  ~taken() { std::cerr.rdbuf(before); }
};

TEST_CASE("log: on standard error, unless somebody takes it") {
  std::vector<std::string> heard;
  std::string on_cerr;
  {
    const taken here;
    weft::detail::say("worker1", "first");
    weft::log_to([&](const weft::log_entry& e) {
      heard.push_back(std::string(e.who) + "|" + std::string(e.text));
    });
    weft::detail::say("worker1", "second");
    weft::detail::say("", "third");
    weft::log_to([&](const weft::log_entry&) { throw std::runtime_error("dropped"); });
    weft::detail::say("worker1", "fourth");
    weft::log_to({});
    weft::detail::say("", "fifth");
    on_cerr = here.text.str();
  }
  CHECK(on_cerr == "weft: worker1: first\nweft: fifth\n");
  CHECK(heard == std::vector<std::string>{"worker1|second", "|third"});
}

TEST_CASE("log: a sink may put another in its place") {
  int calls = 0;
  weft::log_to([&](const weft::log_entry&) {
    ++calls;
    weft::log_to({});
  });
  weft::detail::say("", "one");
  const taken here;
  weft::detail::say("", "two");
  CHECK(calls == 1);
}

}  // namespace core_log
