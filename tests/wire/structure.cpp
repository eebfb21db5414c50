// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/structure.hpp>

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <ratio>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace structures {

using weft::describable;
using weft::structure_hash;
using weft::structure_of;

template <class A, class B>
constexpr bool same = structure_of<A>() == structure_of<B>();

enum class small : std::uint8_t { a };
enum class other_small : std::uint8_t { b, c };
enum class wide : std::int64_t { a };

struct point {
  double x;
  double y;
};
struct renamed {
  double column;
  double row;
};
struct swapped {
  double x;
  float y;
};
struct swapped_back {
  float y;
  double x;
};
struct line {
  point a;
  point b;
};
struct flat_line {
  double a, b, c, d;
};
struct arrays {
  int a[3];
  std::string b[2][2];
};
struct node {
  int value;
  std::vector<node> children;
};
struct other_node {
  int value;
  std::vector<other_node> children;
};
struct chain {
  int value;
  std::unique_ptr<chain> children;
};
struct even;
struct odd {
  std::vector<even> next;
};
struct even {
  std::vector<odd> next;
  std::vector<even> same;
};

class foreign {
 public:
  explicit foreign(int v) : value_(v) {}
  int value() const { return value_; }

 private:
  int value_;
};
class versioned {
 public:
  static constexpr std::string_view weft_structure = "versioned 1";
  explicit versioned(int v) : value_(v) {}
  int value() const { return value_; }

 private:
  int value_;
};
template <class T>
class boxed {
 public:
  explicit boxed(T v) : value_(std::move(v)) {}
  const T& value() const { return value_; }

 private:
  T value_;
};
class unknown {
 public:
  explicit unknown(int v) : value_(v) {}
  int value() const { return value_; }

 private:
  int value_;
};
struct holds_unknown {
  int a;
  std::vector<std::optional<unknown>> b;
};
struct own_encoding {
  int a;
  friend void weft_encode(weft::writer&, const own_encoding&) {}
  friend own_encoding weft_decode(weft::reader&, std::type_identity<own_encoding>);
};
template <class T>
struct own_box {
  T a;
  friend void weft_encode(weft::writer&, const own_box&) {}
  friend own_box weft_decode(weft::reader&, std::type_identity<own_box>);
};
namespace own_unit {
enum class metres : int {};
enum class feet : int {};
template <class T>
  requires std::is_enum_v<T>
void weft_encode(weft::writer&, const T&) {}
template <class T>
  requires std::is_enum_v<T>
T weft_decode(weft::reader&, std::type_identity<T>) {
  return {};
}
}  // namespace own_unit
template <int N>
struct own_number {
  friend void weft_encode(weft::writer&, const own_number&) {}
  friend own_number weft_decode(weft::reader&, std::type_identity<own_number>);
};
template <class T>
struct around {
  struct own {
    friend void weft_encode(weft::writer&, const own&) {}
    friend own weft_decode(weft::reader&, std::type_identity<own>);
  };
};
struct own_tree {
  int value;
  std::vector<own_box<own_tree>> children;
};
namespace {
struct hidden {
  [[maybe_unused]] friend void weft_encode(weft::writer&, const hidden&) {}
  [[maybe_unused]] friend hidden weft_decode(weft::reader&, std::type_identity<hidden>) {
    return {};
  }
};
}  // namespace
namespace elsewhere {
inline namespace v2 {
struct own_encoding {
  long b;
  friend void weft_encode(weft::writer&, const own_encoding&) {}
  friend own_encoding weft_decode(weft::reader&, std::type_identity<own_encoding>);
};
}  // namespace v2
}  // namespace elsewhere
template <class... T>
struct own_row {
  friend void weft_encode(weft::writer&, const own_row&) {}
  friend own_row weft_decode(weft::reader&, std::type_identity<own_row>);
};
struct big_endian {};
struct little_endian {};
enum class metres : int {};
enum class feet : int {};
class declared;
template <class...>
struct tag {
  struct big {};
  enum class unit : int {};
};
class of_nothing {
 public:
  virtual ~of_nothing() = default;
  virtual void f() = 0;
};
struct writes_only {
  int a, secret;
  friend void weft_encode(weft::writer&, const writes_only&) {}
};
struct reads_only {
  int a;
  friend reads_only weft_decode(weft::reader&, std::type_identity<reads_only>);
};
struct reads_otherwise {
  int a;
  friend void weft_encode(weft::writer&, const reads_otherwise&) {}
  friend reads_otherwise weft_decode(weft::reader&, reads_otherwise*);
};
struct own_and_named {
  int a;
  static constexpr const char* weft_structure = "own 1";
  friend void weft_encode(weft::writer&, const own_and_named&) {}
};
struct has_reference {
  int& a;
};
struct thirty_three {
  int m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20,
      m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32;
};

}  // namespace structures

template <>
struct weft::structure<structures::foreign> {
  static constexpr std::string_view tag = "foreign";
};
template <class T>
struct weft::structure<structures::boxed<T>> {
  static constexpr std::string_view tag = "boxed";
  using parts = std::tuple<T>;
};

namespace structures {

TEST_CASE("structure: names do not matter, types, order and count do") {
  CHECK(same<point, renamed>);
  CHECK_FALSE(same<point, swapped>);
  CHECK_FALSE(same<swapped, swapped_back>);
  CHECK_FALSE(same<line, flat_line>);
  CHECK_FALSE(same<point, std::pair<double, double>>);
  CHECK(same<small, other_small>);
  CHECK_FALSE(same<small, wide>);
  CHECK_FALSE(same<small, std::uint8_t>);
  CHECK(same<const point&, point>);
}

TEST_CASE("structure: arithmetic types are told apart by kind and size") {
  CHECK(same<long long, std::int64_t>);
  CHECK(same<unsigned long long, std::uint64_t>);
  CHECK_FALSE(same<int, unsigned>);
  CHECK_FALSE(same<int, float>);
  CHECK_FALSE(same<int, std::int64_t>);
  CHECK_FALSE(same<bool, std::uint8_t>);
  CHECK_FALSE(same<bool, char>);
  CHECK_FALSE(same<char, std::int8_t>);
  CHECK_FALSE(same<float, double>);
}

TEST_CASE("structure: standard types") {
  CHECK_FALSE(same<std::string, std::vector<char>>);
  CHECK_FALSE(same<std::vector<int>, std::set<int>>);
  CHECK_FALSE(same<std::vector<int>, std::vector<unsigned>>);
  CHECK(same<std::map<int, std::string>, std::unordered_map<int, std::string>>);
  CHECK_FALSE(same<std::map<int, std::string>, std::map<std::string, int>>);
  CHECK_FALSE(same<std::array<int, 3>, std::array<int, 4>>);
  CHECK_FALSE(same<std::optional<int>, std::unique_ptr<int>>);
  CHECK_FALSE(same<std::variant<int, float>, std::variant<float, int>>);
  CHECK_FALSE(same<std::variant<int>, std::variant<int, int>>);
  CHECK_FALSE(same<std::tuple<int, std::tuple<int>>, std::tuple<std::tuple<int, int>>>);
  CHECK_FALSE(same<std::tuple<std::tuple<int>, int>, std::tuple<std::tuple<int, int>>>);
  CHECK(same<std::vector<int>, std::deque<int>>);
  using std::chrono::time_point;
  CHECK(describable<time_point<std::chrono::system_clock>>);
  CHECK_FALSE(describable<time_point<std::chrono::steady_clock>>);
  using ms = std::chrono::duration<std::int64_t, std::milli>;
  using us = std::chrono::duration<std::int64_t, std::micro>;
  CHECK(same<ms, std::chrono::duration<long long, std::ratio<1, 1000>>>);
  CHECK_FALSE(same<ms, us>);
  CHECK_FALSE(same<ms, std::chrono::duration<double, std::milli>>);
}

TEST_CASE("structure: C arrays inside an aggregate") {
  struct as_arrays {
    std::array<int, 3> a;
    std::array<std::array<std::string, 2>, 2> b;
  };
  CHECK(same<arrays, as_arrays>);
}

TEST_CASE("structure: recursive types are cut where they repeat") {
  CHECK(same<node, other_node>);
  CHECK_FALSE(same<node, chain>);
  CHECK_FALSE(same<even, odd>);
  CHECK(describable<even>);
}

TEST_CASE("structure: customized types are described by their text and parts") {
  CHECK_FALSE(same<foreign, versioned>);
  CHECK_FALSE(same<boxed<int>, boxed<float>>);
  CHECK_FALSE(same<boxed<int>, std::optional<int>>);
}

TEST_CASE("structure: a class with its own weft_encode is described by its name") {
  CHECK(describable<own_encoding>);
  CHECK(describable<hidden>);
  CHECK(same<own_encoding, elsewhere::own_encoding>);  // wherever it stands
  CHECK_FALSE(same<own_encoding, own_and_named>);
  CHECK_FALSE(same<own_encoding, hidden>);
  CHECK_FALSE(same<own_box<int>, own_box<float>>);
  CHECK_FALSE(same<own_box<own_encoding>, own_box<own_and_named>>);
  CHECK(describable<own_box<std::vector<own_box<int>>>>);
  CHECK(describable<own_tree>);
  CHECK_FALSE(describable<own_number<3>>);
  CHECK_FALSE(describable<around<int>::own>);
  CHECK_FALSE(describable<own_box<unknown>>);
  CHECK(describable<own_and_named>);
}

TEST_CASE("structure: of a template with a codec of its own, all arguments count") {
  CHECK_FALSE(same<own_row<>, own_row<int>>);
  CHECK(structure_hash<own_row<int, own_row<>>, int>() !=
        structure_hash<own_row<int>, own_row<int>>());
  CHECK_FALSE(same<own_row<big_endian, int>, own_row<little_endian, int>>);
  CHECK_FALSE(same<own_row<metres>, own_row<feet>>);
  CHECK_FALSE(same<own_row<own_unit::metres>, own_row<own_unit::feet>>);
  CHECK_FALSE(same<own_row<own_box<metres>>, own_row<own_box<feet>>>);
  CHECK_FALSE(same<own_row<tag<int>>, own_row<tag<float>>>);
  CHECK_FALSE(same<own_row<tag<int>>, own_row<tag<>>>);
  CHECK_FALSE(same<own_row<tag<metres>>, own_row<tag<feet>>>);
  CHECK_FALSE(same<own_row<tag<tag<metres>>>, own_row<tag<tag<feet>>>>);
  CHECK_FALSE(same<own_row<std::vector<metres>>, own_row<std::vector<feet>>>);
  CHECK_FALSE(same<own_row<std::tuple<big_endian>>, own_row<std::tuple<little_endian>>>);
  CHECK_FALSE(same<own_row<tag<std::pair<metres, int>>>, own_row<tag<std::pair<feet, int>>>>);
  CHECK(describable<own_row<void>>);
  CHECK_FALSE(describable<own_row<declared>>);
  CHECK_FALSE(describable<own_row<of_nothing>>);
  CHECK_FALSE(describable<own_row<int(int)>>);
  // Nothing tells these from others like them.
  CHECK_FALSE(describable<own_row<std::integral_constant<int, 3>>>);
  CHECK_FALSE(describable<own_row<std::ratio<1, 1000>>>);
  CHECK_FALSE(describable<own_row<tag<int>::big>>);
  CHECK_FALSE(describable<own_row<tag<int>::unit>>);
  CHECK_FALSE(describable<own_row<tag<std::ratio<1, 1000>>>>);
  CHECK_FALSE(describable<own_row<std::tuple<std::ratio<1, 1000>>>>);
  CHECK_FALSE(describable<own_row<tag<int(int)>>>);
}

TEST_CASE("structure: a type with one function of the pair is none that its members describe") {
  CHECK_FALSE(describable<writes_only>);
  CHECK_FALSE(describable<reads_only>);
  CHECK_FALSE(describable<reads_otherwise>);
  CHECK_FALSE(describable<std::vector<writes_only>>);
}

TEST_CASE("structure: within a program, names are in full") {
  using weft::detail::structure_in_full;
  CHECK(structure_in_full<own_encoding>() != structure_in_full<elsewhere::own_encoding>());
  CHECK(structure_in_full<std::vector<own_encoding>>() !=
        structure_in_full<std::vector<elsewhere::own_encoding>>());
  CHECK(structure_in_full<own_box<own_encoding>>() !=
        structure_in_full<own_box<elsewhere::own_encoding>>());
  CHECK(structure_in_full<long>() == structure_in_full<long long>());
}

TEST_CASE("structure: what cannot be described is told without an error") {
  CHECK(describable<void>);
  CHECK(describable<std::vector<std::map<int, boxed<node>>>>);
  CHECK_FALSE(describable<unknown>);
  CHECK_FALSE(describable<holds_unknown>);
  CHECK_FALSE(describable<boxed<unknown>>);
  CHECK_FALSE(describable<int*>);
  CHECK_FALSE(describable<std::string_view>);
  CHECK_FALSE(describable<has_reference>);
  CHECK_FALSE(describable<thirty_three>);
}

TEST_CASE("structure: a list of types is not one of its rearrangements") {
  CHECK(structure_hash<int, float>() != structure_hash<float, int>());
  CHECK(structure_hash<int>() != structure_hash<int, void>());
  CHECK(structure_hash<void, int>() != structure_hash<int, void>());
}

// These numbers are part of the protocol: every compiler must find them, and no change to the
// library may alter them without a new protocol version.
TEST_CASE("structure: every compiler computes these very numbers") {
  CHECK(structure_of<void>() == 0x29620a93u);
  CHECK(structure_of<int>() == 0x11b1bbedu);
  CHECK(structure_of<std::string>() == 0x36cf629du);
  CHECK(structure_of<std::vector<double>>() == 0x1644ee9eu);
  CHECK(structure_of<std::map<std::string, std::vector<std::uint8_t>>>() == 0x39c68974u);
  CHECK(structure_of<std::variant<std::monostate, int, std::string>>() == 0x201ce2e9u);
  CHECK(structure_of<std::chrono::duration<std::int64_t, std::nano>>() == 0x4da75adfu);
  CHECK(structure_of<line>() == 0x134a5defu);
  CHECK(structure_of<arrays>() == 0xb8ba4c39u);
  CHECK(structure_of<node>() == 0x83dec8d2u);
  CHECK(structure_of<even>() == 0x83c6c660u);
  CHECK(structure_of<boxed<foreign>>() == 0x2451d682u);
  CHECK(structure_of<own_encoding>() == 0x330eb5b1u);
  CHECK(structure_of<own_box<std::vector<own_encoding>>>() == 0xb0f6c5e8u);
  CHECK(structure_of<own_box<own_encoding>>() == 0x5e266d9fu);
  CHECK(structure_of<own_tree>() == 0x2f2ca54eu);
  CHECK(structure_of<own_row<>>() == 0xc80c01b6u);
  CHECK(structure_of<own_row<metres>>() == 0x61516f65u);
  CHECK(structure_of<own_row<own_unit::metres, int>>() == 0x35ec1c03u);
  CHECK(structure_of<own_row<tag<metres>, tag<>>>() == 0xdcf6bb26u);
  CHECK(structure_of<own_row<std::vector<metres>>>() == 0xe52931c3u);
  CHECK(structure_hash<void, small, std::tuple<>>() == 0x4d32ea64u);
}

}  // namespace structures
