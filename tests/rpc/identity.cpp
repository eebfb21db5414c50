// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/identity.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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

enum class color { red, green };
enum level : unsigned char { low, high };
int width = 3;
struct point {
  int x, y;
};

template <int N>
int nth() {
  return N;
}
template <auto V>
int of_value() {
  return 0;
}
template <class T, T V>
int of_typed() {
  return 0;
}
template <class... T>
int pack(T...) {
  return 0;
}
template <int... N>
int numbers() {
  return 0;
}
template <class... T>
struct pack_of {};
template <template <class...> class C, class T>
int container(C<T>) {
  return 0;
}
template <std::integral T>
T constrained(T x) {
  return x;
}
template <class T>
  requires(sizeof(T) > 1)
T required(T x) {
  return x;
}
template <class T>
std::vector<T> wide(const std::map<std::string, T>&, T (*)(int), T (&)[3]) {
  return {};
}
template <class T>
auto deduced(T x) {
  return x;
}
template <point P>
int of_point() {
  return P.x;
}

template <class T>
struct nest {
  template <class U>
  U as(U u) const& {
    return u;
  }
  static int count() { return 1; }
  struct inner {
    int deep() noexcept { return 1; }
  };
};
template <class T, int N>
struct grid {
  T at(int) volatile { return T{}; }
};

inline namespace v1 {
int versioned(int x) { return x; }
template <class T>
int versioned_too() {
  return 1;
}
}  // namespace v1

extern "C" int weft_test_of_c(int x) { return x; }

namespace {
struct hidden_class {};
}  // namespace
static int of_this_file(int x) { return x; }

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
  CHECK(function_id<named<"generic of int", &generic<int>>>() !=
        function_id<named<"generic of long", &generic<long>>>());
  CHECK(function_id<named<"identities::plain", &quiet>>() == function_id<&plain>());
}

TEST_CASE("identity: constructors carry the name of their class") {
  CHECK(function_name<constructor<shape>>() == "identities::shape::shape");
  CHECK(function_name<constructor<shape::corner, int, double>>() ==
        "identities::shape::corner::corner");
}

TEST_CASE("identity: what is no name at all is refused by the compiler") {
  CHECK(name_of<&plain>::plain);
  CHECK(name_of<&box<int>::get>::plain);
  CHECK(name_of<constructor<box<int>>>::plain);
  CHECK_FALSE(name_of<&hidden>::plain);
  CHECK_FALSE(name_of<&shape::operator()>::plain);
  CHECK_FALSE(name_of<&identities::operator+ >::plain);
  CHECK_FALSE(name_of<named<"", &plain>>::plain);
  struct local {
    int member() { return 0; }
  };
  CHECK_FALSE(name_of<&local::member>::plain);
  CHECK_FALSE(name_of<3>::allowed);
  CHECK_FALSE(name_of<named<"three", 3>>::allowed);
}

TEST_CASE("identity: what only the program knows to have no name is no portable one") {
  struct local {};
  using weft::detail::spelling_of;
  CHECK(spelling_of<&generic<int>>().portable);
  CHECK_FALSE(spelling_of<&generic<local>>().portable);
  CHECK_FALSE(spelling_of<&of_value<[] { return 1; }>>().portable);
  CHECK_FALSE(spelling_of<&of_point<point{1, 0}>>().portable);
  // No compiler refuses these, nor need it: two source files that have one are refused together.
  CHECK(function_name<&of_this_file>() == "identities::of_this_file");
  CHECK(function_name<&generic<hidden_class>>() ==
        "identities::generic<identities::(anonymous namespace)::hidden_class>");
}

TEST_CASE("identity: a plain name is identifiers joined by two colons") {
  using weft::detail::is_plain_name;
  CHECK(is_plain_name("a"));
  CHECK(is_plain_name("_a::B9::c_d"));
  CHECK(is_plain_name("n::\xc3\xa4"));
  CHECK(is_plain_name("a::f<b<(c)1>, d::e>::g<>"));
  constexpr std::string_view refused[] = {"",
                                          "::a",
                                          "a::",
                                          "a:b",
                                          "a:::b",
                                          "a::::b",
                                          "9a",
                                          "a::9",
                                          "a b",
                                          "(anonymous namespace)::f",
                                          "{anonymous}::f",
                                          "main()::L::m",
                                          "a,b",
                                          "a.b",
                                          "&a",
                                          "a::~b",
                                          "<a>",
                                          "a<b",
                                          "a<b>c",
                                          "a<b>::",
                                          "a::operator+",
                                          "a::operator<",
                                          "a::operator<=>",
                                          "operator<"};
  for (const std::string_view bad : refused) {
    CAPTURE(bad);
    CHECK_FALSE(is_plain_name(bad));
  }
}

using weft::name_hash;

// Every compiler must find these very names, by which the ids are made.
#define SAME_NAME(text, ...)                                                                       \
  CHECK(function_name<__VA_ARGS__>() == text);                                                     \
  CHECK(function_id<__VA_ARGS__>() == name_hash(text))

TEST_CASE("identity: template arguments are part of the name") {
  SAME_NAME("identities::generic<int>", &generic<int>);
  SAME_NAME("identities::generic<unsigned char>", &generic<unsigned char>);
  SAME_NAME("identities::generic<signed char>", &generic<signed char>);
  SAME_NAME("identities::generic<long long>", &generic<long long>);
  SAME_NAME("identities::generic<float>", &generic<float>);
  SAME_NAME("identities::generic<char8_t>", &generic<char8_t>);
  SAME_NAME("identities::generic<std::nullptr_t>", &generic<std::nullptr_t>);
  SAME_NAME("identities::generic<identities::color>", &generic<color>);
  SAME_NAME("identities::generic<char const*>", &generic<const char*>);
  SAME_NAME("identities::generic<int(int, double)*>", &generic<int (*)(int, double)>);
  SAME_NAME("identities::generic<int identities::point::*>", &generic<int point::*>);
  SAME_NAME("identities::generic<std::basic_string<char, std::char_traits<char>, "
            "std::allocator<char>>>",
            &generic<std::string>);
  SAME_NAME("identities::generic<std::vector<std::vector<identities::color, "
            "std::allocator<identities::color>>, std::allocator<std::vector<identities::color, "
            "std::allocator<identities::color>>>>>",
            &generic<std::vector<std::vector<color>>>);
  SAME_NAME("identities::wide<double>", &wide<double>);
  SAME_NAME("identities::deduced<int>", &deduced<int>);
  SAME_NAME("identities::constrained<int>", &constrained<int>);
  SAME_NAME("identities::required<int>", &required<int>);
}

TEST_CASE("identity: values, packs and templates as template arguments") {
  SAME_NAME("identities::nth<3>", &nth<3>);
  SAME_NAME("identities::nth<-3>", &nth<-3>);
  SAME_NAME("identities::of_value<3>", &of_value<3>);
  SAME_NAME("identities::of_value<(unsigned int)3>", &of_value<3u>);
  SAME_NAME("identities::of_value<(unsigned long)3>", &of_value<3ul>);
  SAME_NAME("identities::of_value<true>", &of_value<true>);
  SAME_NAME("identities::of_value<(char)97>", &of_value<'a'>);
  SAME_NAME("identities::of_value<(identities::color)1>", &of_value<color::green>);
  SAME_NAME("identities::of_value<(identities::level)1>", &of_value<high>);
  SAME_NAME("identities::of_value<nullptr>", &of_value<nullptr>);
  SAME_NAME("identities::of_value<&identities::width>", &of_value<&width>);
  SAME_NAME("identities::of_value<&identities::plain>", &of_value<&plain>);
  SAME_NAME("identities::of_value<&identities::generic<int>>", &of_value<&generic<int>>);
  SAME_NAME("identities::of_value<&identities::wide<double>>", &of_value<&wide<double>>);
  SAME_NAME("identities::of_typed<long, (long)7>", &of_typed<long, 7>);
  SAME_NAME("identities::of_typed<identities::color, (identities::color)0>",
            &of_typed<color, color::red>);
  SAME_NAME("identities::pack<>", &pack<>);
  SAME_NAME("identities::pack<int, double>", &pack<int, double>);
  SAME_NAME("identities::numbers<1, -2, 3>", &numbers<1, -2, 3>);
  SAME_NAME("identities::container<std::vector, int>", &container<std::vector, int>);
  SAME_NAME("identities::container<identities::pack_of, int>", &container<pack_of, int>);
}

TEST_CASE("identity: class templates, inline namespaces, C linkage") {
  SAME_NAME("identities::box<int>::get", &box<int>::get);
  SAME_NAME("identities::nest<identities::nest<int>>::as<double>", &nest<nest<int>>::as<double>);
  SAME_NAME("identities::nest<identities::color>::count", &nest<color>::count);
  SAME_NAME("identities::nest<int>::inner::deep", &nest<int>::inner::deep);
  SAME_NAME("identities::grid<float, 3>::at", &grid<float, 3>::at);
  SAME_NAME("identities::v1::versioned", &versioned);
  SAME_NAME("identities::v1::versioned_too<int>", &versioned_too<int>);
  SAME_NAME("weft_test_of_c", &weft_test_of_c);
  SAME_NAME("identities::box<int>::box", constructor<box<int>>);
  SAME_NAME("identities::nest<int>::inner::inner", constructor<nest<int>::inner, double>);
  SAME_NAME("int::int", constructor<int, int>);
}

// These ids are part of the protocol: every compiler must find them.
TEST_CASE("identity: every compiler computes these very ids") {
  CHECK(weft::name_hash("") == 0xcbf29ce484222325u);
  CHECK(weft::name_hash("a") == 0xaf63dc4c8601ec8cu);
  CHECK(function_id<&global_function>() == 0x8f0c9e531b5659c3u);
  CHECK(function_id<&plain>() == 0xeb6e9b1a77ebb7adu);
  CHECK(function_id<&quiet>() == 0x9a911dcc21b75429u);
  CHECK(function_id<&a::b_1::c::f>() == 0x19f2d38502d0449du);
  CHECK(function_id<&shape::area>() == 0x5a308c8a62b4f749u);
  CHECK(function_id<&shape::sides>() == 0x1b3ca4fed3ec48b8u);
  CHECK(function_id<&shape::count>() == 0xcb20cc010a14d51fu);
  CHECK(function_id<&shape::corner::angle>() == 0x7a6a97322ccc35f0u);
  CHECK(function_id<constructor<shape, int>>() == 0x39b794049c5f4d45u);
  CHECK(function_id<named<"box", &box<int>::get>>() == 0x004d2e191349e4f2u);
  CHECK(function_id<&generic<int>>() == 0x8ec722219ea353f5u);
  CHECK(function_id<&of_value<color::green>>() == 0x6adbf53d2c4da2ebu);
  CHECK(function_id<&nest<nest<int>>::as<double>>() == 0x86199d34c650725bu);
  CHECK(function_id<&wide<double>>() == 0xc6540bf207614c81u);
}

}  // namespace identities
