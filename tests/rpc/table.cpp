// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/invocation.hpp>
#include <weft/rpc/table.hpp>

#include <doctest/doctest.h>

#include <string>

namespace function_tables {

int exposed_only(int x) { return x; }
asio::awaitable<int> exposed_later(int x) { co_return x; }
int never_mentioned(int x) { return x; }
[[maybe_unused]] void never_called() {
  weft::expose<&exposed_only>();
  weft::expose<&exposed_later>();
}

using weft::errc;
using weft::function;

TEST_CASE("table: expose puts a function in wherever it is compiled, executed or not") {
  const weft::function_table table;
  using f = function<&exposed_only>;
  const auto found = table.find(f::id, f::signature);
  REQUIRE(found);
  CHECK((*found)->name == "function_tables::exposed_only");
  CHECK((*found)->style == weft::run_style::pool);
  CHECK(((*found)->run != nullptr));
  using later = function<&exposed_later>;
  const auto coroutine = table.find(later::id, later::signature);
  REQUIRE(coroutine);
  CHECK((*coroutine)->style == weft::run_style::coroutine);
  CHECK(((*coroutine)->start != nullptr));
}

TEST_CASE("table: what no code mentions is unknown") {
  const weft::function_table table;
  using f = function<&never_mentioned>;
  static_cast<void>(&never_mentioned);
  const auto found = table.find(f::id, f::signature);
  REQUIRE_FALSE(found);
  CHECK(found.error() == errc::unknown_function);
  CHECK(found.error().ran() == weft::execution::not_executed);
  CHECK(found.error().detail().text.find(std::to_string(f::id)) != std::string::npos);
}

TEST_CASE("table: a known function with another signature says both") {
  const weft::function_table table;
  using f = function<&exposed_only>;
  for (const std::uint32_t other : {f::signature + 1, f::signature - 1, 0u}) {
    const auto found = table.find(f::id, other);
    REQUIRE_FALSE(found);
    CHECK(found.error() == errc::signature_mismatch);
    const std::string& text = found.error().detail().text;
    CHECK(text.find(std::to_string(f::signature)) != std::string::npos);
    CHECK(text.find(std::to_string(other)) != std::string::npos);
  }
}

}  // namespace function_tables
