// SPDX-License-Identifier: BSL-1.0
// The one main of every test program. Cases of the suite "all" run in `./dev test --all` only.
#define DOCTEST_CONFIG_IMPLEMENT
#include "core/run_all.hpp"
#include "watchdog.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>

namespace {

using namespace doctest;
using namespace doctest::detail;

/// What INFO and CAPTURE say on the test's own thread, which hangs.
struct captured {
  int count = 0;
  const IContextScope* const* contexts = nullptr;
};
const void* captured_here() {
  static captured here;
  here = {IReporter::get_num_active_contexts(), IReporter::get_active_contexts()};
  return &here;
}
std::string in_words(const void* found) {
  if (!found) return {};
  const auto& here = *static_cast<const captured*>(found);
  std::ostringstream out;
  for (int i = 0; i < here.count; ++i) {
    out << "  with ";
    here.contexts[i]->stringify(&out);
    out << '\n';
  }
  return out.str();
}

/// Cases that wait for `./dev test --all`, of those that were to run.
int waiting = 0;

/// Every finished assertion is progress.
class watched final : public IReporter {
 public:
  explicit watched(const ContextOptions&) {}
  void test_case_start(const TestCaseData& test) override { watch(test); }
  void test_case_reenter(const TestCaseData& test) override { watch(test); }
  void test_case_end(const CurrentTestCaseStats&) override { weft::testing::unwatch(); }

  void report_query(const QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const TestRunStats&) override {}
  void test_case_exception(const TestCaseException&) override {}
  void subcase_start(const SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const AssertData&) override {}
  void log_message(const MessageData&) override {}
  void test_case_skipped(const TestCaseData& test) override {
    const auto& filters = g_cs->filters;
    const auto named = [&](const std::vector<String>& by, bool otherwise) {
      return matchesAny(test.m_name, by, otherwise, g_cs->case_sensitive);
    };
    if (String(test.m_test_suite) == "all" && named(filters[4], true) && !named(filters[5], false))
      ++waiting;
  }

 private:
  static void watch(const TestCaseData& test) {
    auto finished = [] { return static_cast<std::uint64_t>(g_cs->numAssertsCurrentTest_atomic); };
    weft::testing::watch(test.m_name, finished, &captured_here, &in_words);
  }
};
REGISTER_LISTENER("watchdog", 1, watched);

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  if (!weft::testing::run_all()) context.addFilter("test-suite-exclude", "all");
  const int failed = context.run();
  if (waiting != 0) std::cout << "waiting for --all: " << waiting << '\n';
  return failed;
}
