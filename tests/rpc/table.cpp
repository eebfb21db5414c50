// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/expose.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rpc/table.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <rpc/cluster.hpp>
#include <string>
#include <string_view>

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
  const auto found = table.find(f::id(), f::signature);
  REQUIRE(found);
  CHECK((*found)->name == "function_tables::exposed_only");
  CHECK((*found)->style == weft::function_style::plain);
  CHECK(((*found)->execute != nullptr));
  using later = function<&exposed_later>;
  const auto coroutine = table.find(later::id(), later::signature);
  REQUIRE(coroutine);
  CHECK((*coroutine)->style == weft::function_style::coroutine);
  CHECK(((*coroutine)->start != nullptr));
}

TEST_CASE("table: what no code mentions is unknown") {
  const weft::function_table table;
  using f = function<&never_mentioned>;
  static_cast<void>(&never_mentioned);
  const auto found = table.find(f::id(), f::signature);
  REQUIRE_FALSE(found);
  CHECK(found.error() == errc::unknown_function);
  CHECK(found.error().ran() == weft::call_progress::not_executed);
  CHECK(found.error().detail().text.find(std::to_string(f::id())) != std::string::npos);
}

TEST_CASE("table: a known function with another signature says both") {
  const weft::function_table table;
  using f = function<&exposed_only>;
  for (const std::uint32_t other : {f::signature + 1, f::signature - 1, 0u}) {
    const auto found = table.find(f::id(), other);
    REQUIRE_FALSE(found);
    CHECK(found.error() == errc::signature_mismatch);
    const std::string& text = found.error().detail().text;
    CHECK(text.find(std::to_string(f::signature)) != std::string::npos);
    CHECK(text.find(std::to_string(other)) != std::string::npos);
  }
}

// ── what cannot be in one program ──

using weft::function_entry;

struct listed {
  listed(std::string_view name, std::uint32_t signature, const char* file,
         function_entry* next = nullptr)
      : file(file) {
    entry.name = name;
    entry.id = weft::name_hash(name);
    entry.signature = signature;
    entry.file = &this->file;
    entry.next = next;
  }
  const char* file;
  function_entry entry;
};

std::string refusal(const function_entry& first) {
  try {
    const weft::function_table table(&first);
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == errc::ambiguous_function);
    return e.error().message();
  }
  return {};
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("table: two functions of one name and signature are refused, with both files") {
  listed a("prepare", 7, "a.cpp");
  listed b("prepare", 7, "b.cpp", &a.entry);
  const std::string text = refusal(b.entry);
  CAPTURE(text);
  CHECK(contains(text, "'prepare'"));
  CHECK(contains(text, "a.cpp"));
  CHECK(contains(text, "b.cpp"));
  CHECK(contains(text, "inline"));
  CHECK(contains(text, "weft::named"));
}

TEST_CASE("table: overloads of different signatures are found apart") {
  listed a("prepare", 7, "a.cpp");
  listed b("prepare", 8, "b.cpp", &a.entry);
  CHECK(refusal(b.entry) == "");
  const weft::function_table table(&b.entry);
  CHECK(*table.find(a.entry.id, 7) == &a.entry);
  CHECK(*table.find(a.entry.id, 8) == &b.entry);
}

TEST_CASE("table: different names with one id are refused, whatever their signatures") {
  for (const std::uint32_t signature : {7u, 8u}) {
    listed a("one", 7, "a.cpp");
    listed b("other", signature, "b.cpp", &a.entry);
    b.entry.id = a.entry.id;
    const std::string text = refusal(b.entry);
    CAPTURE(text);
    CHECK(contains(text, "'one'"));
    CHECK(contains(text, "'other'"));
    CHECK(contains(text, "weft::named"));
  }
}

TEST_CASE("table: a name that other compilers do not find is refused") {
  listed a("generic<main::local>", 7, "a.cpp");
  a.entry.portable = false;
  const std::string text = refusal(a.entry);
  CAPTURE(text);
  CHECK(contains(text, "generic<main::local>"));
  CHECK(contains(text, "a.cpp"));
  CHECK(contains(text, "weft::named"));
}

TEST_CASE("table: constructors of one class may be alike on the wire") {
  struct one {};
  struct other {};
  listed a("shape::shape", 7, "a.cpp");
  listed b("shape::shape", 7, "b.cpp", &a.entry);
  a.entry.constructed = b.entry.constructed = weft::type_key<one>;
  CHECK(refusal(b.entry) == "");
  b.entry.arguments_in_full = 1;  // of types that have equal names, in namespaces of their own
  CHECK(contains(refusal(b.entry), "shape::shape"));
  b.entry.arguments_in_full = 0;
  b.entry.constructed = weft::type_key<other>;  // each file has a class of its own
  CHECK(contains(refusal(b.entry), "shape::shape"));
}

TEST_CASE("table: a program and its shared libraries may register one function") {
  struct form {};
  const int here = 0;
  const int there = 0;
  listed a("prepare", 7, "a.cpp");
  listed b("prepare", 7, "b.cpp", &a.entry);
  a.entry.form = b.entry.form = weft::type_key<form>;
  CHECK(refusal(b.entry) == "");  // a member of a class
  a.entry.code = b.entry.code = &here;
  CHECK(refusal(b.entry) == "");
  b.entry.code = &there;  // each has one of its own
  CHECK(contains(refusal(b.entry), "visibility"));
  b.entry.code = &here;
  b.entry.form = weft::type_key<const form>;
  CHECK(contains(refusal(b.entry), "prepare"));
}

TEST_CASE("table: a source file that a precompiled header hides is not named") {
  for (const char* file : {"", "<built-in>", "pch.hpp", "pch.h", "cmake_pch.hxx.cxx"}) {
    listed a("prepare", 7, file);
    listed b("prepare", 7, "b.cpp", &a.entry);
    const std::string text = refusal(b.entry);
    CAPTURE(text);
    CHECK(contains(text, "one in a file whose name a precompiled header hides"));
    CHECK(contains(text, "one in b.cpp"));
  }
}

template <int N>
int nth() {
  return N;
}
[[maybe_unused]] void specialisations() {
  weft::expose<&nth<1>>();
  weft::expose<&nth<2>>();
}

template <class T>
struct counter {
  static std::string counts(T x) { return std::to_string(sizeof(T)) + ":" + std::to_string(x); }
};

TEST_CASE("table: a call reaches the very specialisation that was named") {
  weft::testing::everywhere(2, [](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const weft::peer p = me.peer(1);
    CHECK(co_await p.call<&nth<1>>() == 1);
    CHECK(co_await p.call<&nth<2>>() == 2);
    CHECK(co_await p.call<&counter<int>::counts>(3) == "4:3");
    // Of one signature, for both travel as eight bytes.
    CHECK(co_await p.call<&counter<long>::counts>(3) == "8:3");
    CHECK(co_await p.call<&counter<long long>::counts>(4) == "8:4");
  });
}

TEST_CASE("table: specialisations of one template have entries of their own") {
  const weft::function_table table;
  const auto one = table.find(function<&nth<1>>::id(), function<&nth<1>>::signature);
  const auto two = table.find(function<&nth<2>>::id(), function<&nth<2>>::signature);
  REQUIRE(one);
  REQUIRE(two);
  CHECK(*one != *two);
  CHECK(((*one)->execute != (*two)->execute));
}

}  // namespace function_tables
