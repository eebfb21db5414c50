// SPDX-License-Identifier: BSL-1.0
// The one main of every test program.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "watchdog.hpp"

#include <doctest/doctest.h>

#include <cstdint>
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
  void test_case_skipped(const TestCaseData&) override {}

 private:
  static void watch(const TestCaseData& test) {
    auto finished = [] { return static_cast<std::uint64_t>(g_cs->numAssertsCurrentTest_atomic); };
    weft::testing::watch(test.m_name, finished, &captured_here, &in_words);
  }
};
REGISTER_LISTENER("watchdog", 1, watched);

}  // namespace
