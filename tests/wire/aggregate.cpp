// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/detail/aggregate.hpp>

#include <doctest/doctest.h>

#include <any>
#include <array>
#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace aggregates {

using weft::detail::aggregate_defect;
using weft::detail::aggregate_verdict_of;
using weft::detail::build;
using weft::detail::element_types_t;
using weft::detail::member_count;
using weft::detail::member_types_t;
using weft::detail::members;
using weft::detail::plain_aggregate;

// Like at::Tensor: several constructors, a templated one among them, and no plain default one.
class tensor_like {
 public:
  explicit tensor_like(int size) : size_(size) {}
  explicit tensor_like(std::unique_ptr<int> data) : size_(*data) {}
  template <class U>
    requires std::is_arithmetic_v<U>
  tensor_like(U size, const char* /*name*/) : size_(static_cast<int>(size)) {}
  template <class... A>
  tensor_like(std::string, A&&...) : size_(0) {}
  int size() const { return size_; }

 private:
  int size_;
};

// Takes anything, as std::any does.
struct greedy {
  template <class U>
    requires(!std::same_as<std::decay_t<U>, greedy>)
  greedy(U&&) {}
};

struct immovable {
  explicit immovable(int v) : value(v) {}
  immovable(const immovable&) = delete;
  immovable& operator=(const immovable&) = delete;
  int value;
};

enum class color : unsigned char { red, green };

struct empty {};
struct point {
  int x;
  double y;
};
struct nested {
  point a;
  std::string name;
  point b;
};
struct only_nested {
  nested inner;
};
struct arrays {
  int a[3];
  char b[16];
  double c;
  point d[2];
  int e[2][3];
  int f[1];
};
struct strings_in_array {
  std::string a[3];
  std::unique_ptr<int> b[2];
  int c;
};
struct tensors_in_array {
  int n;
  tensor_like t[2];
  tensor_like last;
};
struct move_only {
  std::unique_ptr<int> p;
  std::vector<std::unique_ptr<point>> v;
};
struct no_default {
  tensor_like t;
  int n;
  tensor_like u;
};
struct unmoved {
  int n;
  immovable i;
};
struct standard {
  std::any a;
  std::function<int(int)> f;
  std::optional<int> o;
  std::optional<tensor_like> ot;
  std::variant<int, std::string> v;
  std::variant<tensor_like> vt;
  std::tuple<int> t1;
  std::tuple<int, std::string> t2;
  std::pair<int, point> p;
  std::array<int, 4> ar;
  std::map<std::string, std::vector<int>> m;
  std::shared_ptr<int> sp;
  greedy g;
};
struct recursive {
  int value;
  std::vector<recursive> children;
  std::unique_ptr<recursive> next;
  std::optional<std::vector<recursive>> more;
};
struct constants {
  const int a;
  const std::string b;
  const int c[2];
};
struct with_defaults {
  int a = 1;
  std::string b = "b";
  color c = color::green;
  bool d = true;
};
struct pointer_and_long {
  const char* p;
  long double l;
};
struct tag_a {};
struct tag_b {};
struct derived_from_empty : tag_a, tag_b {
  int n;
  std::string s;
};
struct with_empty_members {
  empty a;
  [[no_unique_address]] tag_a b;
  [[no_unique_address]] tag_b c;
  int d;
};
struct thirty_two {
  int m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20,
      m21, m22, m23, m24, m25, m26, m27, m28, m29, m30;
  std::string m31;
};
struct thirty_two_without_default {
  tensor_like m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18,
      m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31;
};
struct thirty_three {
  int m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20,
      m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32;
};
struct arrays_without_default {
  tensor_like a[16], b[16], c[16];
};
struct lvalue_reference {
  int a;
  std::unique_ptr<int> b;
  int& c;
};
struct const_reference {
  int a;
  const std::string& b;
};
struct rvalue_reference {
  int&& a;
};
struct base_with_members : point {
  int z;
};
struct base_only : point {};
struct second_base_full : tag_a, point {
  int z;
};
union either {
  int i;
  float f;
};
struct has_union {
  int a;
  either b;
};
struct has_anonymous_union {
  int a;
  int b;
  union {
    int i;
    float f;
  };
};
struct holds_has_union {  // refused where has_union is taken apart, not here
  has_union a;
  int b;
};
struct long_array {
  int n;
  char text[17];
  int m;
};
struct very_long_array {
  char text[4096];
};
struct too_wide_matrix {
  int m[4][5];
};

static_assert(member_count<empty>() == 0);
static_assert(member_count<point>() == 2);
static_assert(member_count<const point>() == 2);
static_assert(member_count<nested>() == 3);
static_assert(member_count<only_nested>() == 1);
static_assert(member_count<arrays>() == 6);
static_assert(member_count<strings_in_array>() == 3);
static_assert(member_count<tensors_in_array>() == 3);
static_assert(member_count<move_only>() == 2);
static_assert(member_count<no_default>() == 3);
static_assert(member_count<unmoved>() == 2);
static_assert(member_count<standard>() == 13);
static_assert(member_count<recursive>() == 4);
static_assert(member_count<constants>() == 3);
static_assert(member_count<with_defaults>() == 4);
static_assert(member_count<pointer_and_long>() == 2);
static_assert(member_count<derived_from_empty>() == 2);
static_assert(member_count<with_empty_members>() == 4);
static_assert(member_count<thirty_two>() == 32);
static_assert(member_count<thirty_two_without_default>() == 32);
static_assert(member_count<arrays_without_default>() == 3);
static_assert(member_count<holds_has_union>() == 2);

static_assert(std::same_as<member_types_t<empty>, std::tuple<>>);
static_assert(std::same_as<member_types_t<nested>, std::tuple<point, std::string, point>>);
static_assert(std::same_as<member_types_t<arrays>,
                           std::tuple<int[3], char[16], double, point[2], int[2][3], int[1]>>);
static_assert(std::same_as<member_types_t<const constants>, std::tuple<int, std::string, int[2]>>);
static_assert(std::same_as<element_types_t<constants>, std::tuple<int, std::string, int, int>>);
static_assert(std::same_as<member_types_t<derived_from_empty>, std::tuple<int, std::string>>);

template <class T>
constexpr bool refused(aggregate_defect defect, std::size_t index) {
  return !plain_aggregate<T> && aggregate_verdict_of<T>.defect == defect &&
         aggregate_verdict_of<T>.index == index;
}
static_assert(refused<lvalue_reference>(aggregate_defect::reference_member, 2));
static_assert(refused<const_reference>(aggregate_defect::reference_member, 1));
static_assert(refused<rvalue_reference>(aggregate_defect::reference_member, 0));
static_assert(refused<base_with_members>(aggregate_defect::base_with_members, 0));
static_assert(refused<base_only>(aggregate_defect::base_with_members, 0));
static_assert(refused<second_base_full>(aggregate_defect::base_with_members, 1));
static_assert(refused<either>(aggregate_defect::is_union, 0));
static_assert(refused<has_union>(aggregate_defect::union_member, 1));
static_assert(refused<has_anonymous_union>(aggregate_defect::union_member, 2));
static_assert(refused<long_array>(aggregate_defect::long_array, 1));
static_assert(refused<too_wide_matrix>(aggregate_defect::long_array, 0));
static_assert(refused<very_long_array>(aggregate_defect::too_many_members, 32));
static_assert(refused<thirty_three>(aggregate_defect::too_many_members, 32));
static_assert(!plain_aggregate<int>);
static_assert(!plain_aggregate<std::string>);
static_assert(!plain_aggregate<int[3]>);
static_assert(plain_aggregate<recursive>);

// Makes values that tell their place in the order of the calls.
struct counter {
  int calls = 0;
  template <class M>
  M operator()() {
    ++calls;
    if constexpr (std::is_arithmetic_v<M>) {
      return static_cast<M>(calls);
    } else if constexpr (std::same_as<M, std::string>) {
      return std::to_string(calls);
    } else if constexpr (std::same_as<M, tensor_like>) {
      return tensor_like(calls);
    } else if constexpr (std::same_as<M, immovable>) {
      return immovable(calls);
    } else if constexpr (std::same_as<M, std::unique_ptr<int>>) {
      return std::make_unique<int>(calls);
    } else if constexpr (plain_aggregate<M>) {
      --calls;
      return build<M>(*this);
    } else {
      return M{};
    }
  }
};

TEST_CASE("aggregate: members are references to the object's own members") {
  point p{1, 2.5};
  auto [x, y] = members(p);
  static_assert(std::same_as<decltype(members(p)), std::tuple<int&, double&>>);
  static_assert(
      std::same_as<decltype(members(std::as_const(p))), std::tuple<const int&, const double&>>);
  CHECK(&x == &p.x);
  y = 4;
  CHECK(p.y == 4);
}

TEST_CASE("aggregate: C arrays are one member each") {
  arrays a{};
  a.b[15] = 'z';
  a.e[1][2] = 7;
  auto m = members(a);
  static_assert(std::tuple_size_v<decltype(m)> == 6);
  static_assert(std::same_as<std::tuple_element_t<4, decltype(m)>, int(&)[2][3]>);
  CHECK(std::get<1>(m)[15] == 'z');
  CHECK(std::get<4>(m)[1][2] == 7);
}

TEST_CASE("aggregate: build calls for the members in order") {
  counter f;
  const auto n = build<nested>(f);
  CHECK(f.calls == 5);
  CHECK(n.a.x == 1);
  CHECK(n.a.y == 2);
  CHECK(n.name == "3");
  CHECK(n.b.x == 4);
  CHECK(n.b.y == 5);
}

TEST_CASE("aggregate: build fills C arrays element by element") {
  counter f;
  const auto a = build<arrays>(f);
  CHECK(f.calls == 3 + 16 + 1 + 4 + 6 + 1);
  CHECK(a.a[2] == 3);
  CHECK(a.b[0] == 4);
  CHECK(a.c == 20);
  CHECK(a.d[1].y == 24);
  CHECK(a.e[0][0] == 25);
  CHECK(a.e[1][2] == 30);
  CHECK(a.f[0] == 31);

  counter g;
  const auto s = build<strings_in_array>(g);
  CHECK(s.a[2] == "3");
  CHECK(*s.b[1] == 5);
  CHECK(s.c == 6);
}

TEST_CASE("aggregate: build needs neither default construction, nor moving, nor assignment") {
  counter f;
  const auto a = build<no_default>(f);
  CHECK(a.t.size() == 1);
  CHECK(a.u.size() == 3);
  const auto b = build<unmoved>(f);
  CHECK(b.i.value == 5);
  const auto c = build<constants>(f);
  CHECK(c.a == 6);
  CHECK(c.b == "7");
  CHECK(c.c[1] == 9);
  const auto d = build<tensors_in_array>(f);
  CHECK(d.t[1].size() == 12);
  CHECK(d.last.size() == 13);
  const auto e = build<thirty_two_without_default>(f);
  CHECK(e.m31.size() == 13 + 32);
}

TEST_CASE("aggregate: empty bases are passed over") {
  counter f;
  auto d = build<derived_from_empty>(f);
  CHECK(d.n == 1);
  CHECK(d.s == "2");
  CHECK(&std::get<1>(members(d)) == &d.s);
}

struct counted {
  int* alive;
  explicit counted(int* a) : alive(a) { ++*alive; }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  ~counted() { --*alive; }
};
struct several {
  counted a;
  counted b[2];
  counted c;
};
struct thrower {
  int* alive;
  int left;
  template <class M>
  M operator()() {
    if (left-- == 0) throw std::runtime_error("enough");
    return M(alive);
  }
};

TEST_CASE("aggregate: what was built before an exception is destroyed") {
  for (int made = 0; made < 4; ++made) {
    int alive = 0;
    CHECK_THROWS_AS(build<several>(thrower{&alive, made}), std::runtime_error);
    CHECK(alive == 0);
  }
  int alive = 0;
  {
    const auto s = build<several>(thrower{&alive, 4});
    CHECK(alive == 4);
    CHECK(s.c.alive == &alive);
  }
  CHECK(alive == 0);
}

struct maker {
  int next = 1;
  template <class M>
  constexpr M operator()() {
    return static_cast<M>(next++);
  }
};

TEST_CASE("aggregate: a constant expression may take apart and build") {
  constexpr point p = build<point>(maker{});
  static_assert(p.x == 1 && p.y == 2.0);
  static_assert(std::get<0>(members(p)) == 1);
  CHECK(p.x == 1);
}

}  // namespace aggregates
