// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/identity.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>

int global_function(int x);
int global_function(int x) { return x; }

namespace identities {

int plain(int x) { return x; }
int quiet(int x) noexcept { return x; }
std::string text(std::string_view s) { return std::string(s); }
template <class T>
T generic(T x) {
  return x;
}
int F_equals(int x) { return x; }  // NOLINT: compilers print "F = " before the name

struct shape {
  int area() { return 1; }
  int sides() const noexcept { return 4; }
  static int count() { return 2; }
  virtual int turn() { return 3; }
  virtual ~shape() = default;
  struct corner {
    double angle() const { return 0.5; }
  };
  bool operator()() { return true; }
};
struct square : shape {};

namespace {
int hidden(int x) { return x; }
}  // namespace

shape operator+(const shape& a, const shape&) { return a; }

template <class T>
struct box {
  T get() { return T{}; }
};

namespace a::b_1::c {
void f() {}
}  // namespace a::b_1::c

using weft::constructor;
using weft::function_id;
using weft::function_name;
using weft::named;
using weft::detail::name_of;

TEST_CASE("identity: the qualified source name") {
  CHECK(function_name<&plain>() == "identities::plain");
  CHECK(function_name<plain>() == "identities::plain");
  CHECK(function_name<&quiet>() == "identities::quiet");
  CHECK(function_name<&text>() == "identities::text");
  CHECK(function_name<&F_equals>() == "identities::F_equals");
  CHECK(function_name<&global_function>() == "global_function");
  CHECK(function_name<&a::b_1::c::f>() == "identities::a::b_1::c::f");
}

TEST_CASE("identity: member functions") {
  CHECK(function_name<&shape::area>() == "identities::shape::area");
  CHECK(function_name<&shape::sides>() == "identities::shape::sides");
  CHECK(function_name<&shape::count>() == "identities::shape::count");
  CHECK(function_name<&shape::turn>() == "identities::shape::turn");
  CHECK(function_name<&shape::corner::angle>() == "identities::shape::corner::angle");
  CHECK(function_name<&square::area>() == "identities::shape::area");
}

TEST_CASE("identity: a given name replaces the printed one") {
  CHECK(function_name<named<"generic of int", &generic<int>>>() == "generic of int");
  CHECK(function_name<named<"box", &box<int>::get>>() == "box");
  CHECK(function_id<named<"generic of int", &generic<int>>> !=
        function_id<named<"generic of long", &generic<long>>>);
  CHECK(function_id<named<"identities::plain", &quiet>> == function_id<&plain>);
}

TEST_CASE("identity: constructors carry the name of their class") {
  CHECK(function_name<constructor<shape>>() == "identities::shape::shape");
  CHECK(function_name<constructor<shape::corner, int, double>>() ==
        "identities::shape::corner::corner");
}

TEST_CASE("identity: names that compilers print differently are not plain") {
  CHECK(name_of<&plain>::plain);
  CHECK_FALSE(name_of<&hidden>::plain);
  CHECK_FALSE(name_of<&box<int>::get>::plain);
  CHECK_FALSE(name_of<&shape::operator()>::plain);
  CHECK_FALSE(name_of<&identities::operator+ >::plain);
  CHECK_FALSE(name_of<constructor<box<int>>>::plain);
  CHECK_FALSE(name_of<named<"", &plain>>::plain);
  struct local {
    int member() { return 0; }
  };
  CHECK_FALSE(name_of<&local::member>::plain);
  CHECK_FALSE(name_of<3>::allowed);
  CHECK_FALSE(name_of<named<"three", 3>>::allowed);
}

TEST_CASE("identity: a plain name is identifiers joined by two colons") {
  using weft::detail::is_plain_name;
  CHECK(is_plain_name("a"));
  CHECK(is_plain_name("_a::B9::c_d"));
  CHECK(is_plain_name("n::\xc3\xa4"));
  for (const char* bad : {"", "::a", "a::", "a:b", "a:::b", "a::::b", "9a", "a::9", "a b", "a<b>",
                          "(anonymous namespace)::f", "{anonymous}::f", "a::operator+", "a,b",
                          "main()::L::m", "a::~b", "a.b", "&a"}) {
    CAPTURE(bad);
    CHECK_FALSE(is_plain_name(bad));
  }
}

// These ids are part of the protocol: every compiler must find them.
TEST_CASE("identity: every compiler computes these very ids") {
  CHECK(weft::name_hash("") == 0xcbf29ce484222325u);
  CHECK(weft::name_hash("a") == 0xaf63dc4c8601ec8cu);
  CHECK(function_id<&global_function> == 0x8f0c9e531b5659c3u);
  CHECK(function_id<&plain> == 0xeb6e9b1a77ebb7adu);
  CHECK(function_id<&quiet> == 0x9a911dcc21b75429u);
  CHECK(function_id<&a::b_1::c::f> == 0x19f2d38502d0449du);
  CHECK(function_id<&shape::area> == 0x5a308c8a62b4f749u);
  CHECK(function_id<&shape::sides> == 0x1b3ca4fed3ec48b8u);
  CHECK(function_id<&shape::count> == 0xcb20cc010a14d51fu);
  CHECK(function_id<&shape::corner::angle> == 0x7a6a97322ccc35f0u);
  CHECK(function_id<constructor<shape, int>> == 0x39b794049c5f4d45u);
  CHECK(function_id<named<"box", &box<int>::get>> == 0x004d2e191349e4f2u);
}

}  // namespace identities
