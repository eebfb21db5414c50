// SPDX-License-Identifier: BSL-1.0
#include "packed.hpp"
#include <weft/wire/codec.hpp>
#include <weft/wire/error_codec.hpp>
#include <weft/wire/message.hpp>

#include <doctest/doctest.h>

#include <core/error_of.hpp>
#include <future>
#include <limits>
#include <stdexcept>

namespace {

using weft::testing::error_of;
using weft_test::pack;

template <class T>
T round_trip(const T& value) {
  return std::get<0>(weft_test::unpack<T>(pack(value)));
}

template <class T>
void same(const T& value) {
  CHECK(round_trip(value) == value);
}

enum class colour : std::uint8_t { red, green = 200 };
enum class truth : bool { no, yes };
struct point {
  int x;
  double y;
  bool operator==(const point&) const = default;
};
struct empty {
  bool operator==(const empty&) const = default;
};
struct deep {
  std::string name;
  std::vector<point> points;
  std::optional<colour> tint;
  std::map<std::string, std::vector<empty>> table;
  int grid[2][3];
  bool operator==(const deep&) const = default;
};
struct move_only {
  std::unique_ptr<int> p;
  std::vector<std::unique_ptr<std::string>> more;
};
struct no_default {
  struct id {
    explicit id(int v) : value(v) {}
    int value;
    bool operator==(const id&) const = default;
    friend void weft_encode(weft::writer& w, const id& i) { w.number(i.value); }
    friend id weft_decode(weft::reader& r, std::type_identity<id>) { return id(r.number<int>()); }
  };
  id a;
  std::vector<id> b;
  bool operator==(const no_default&) const = default;
};
struct tree {
  int value = 0;
  std::vector<tree> children;
  bool operator==(const tree&) const = default;
};
struct chain {
  int value = 0;
  std::unique_ptr<chain> next;
};
struct silent {
  bool operator==(const silent&) const = default;
  silent() {}
  friend void weft_encode(weft::writer&, const silent&) {}
  friend silent weft_decode(weft::reader&, std::type_identity<silent>) { return {}; }
};
struct holds_pointer {
  int a;
  int* b;
};
class closed {
  int x_ = 0;

 public:
  int get() const { return x_; }
};

std::unique_ptr<chain> make_chain(int length) {
  std::unique_ptr<chain> head;
  for (int i = 0; i < length; ++i) {
    auto link = std::make_unique<chain>();
    link->value = i;
    link->next = std::move(head);
    head = std::move(link);
  }
  return head;
}

}  // namespace

TEST_CASE("codec: numbers, enums, characters") {
  same(true);
  same(false);
  same('x');
  same(u8'x');
  same(char32_t{0x1F9F5});
  same(L'x');
  same(std::int8_t{-7});
  same(std::numeric_limits<std::uint64_t>::max());
  same(std::numeric_limits<std::int64_t>::min());
  same(1.5f);
  same(-0.1);
  same(1.0L / 3.0L);
  same(colour::green);
  same(truth::yes);
  same(std::byte{0xFE});
  same(std::complex<double>(1, -2));
  same(std::numeric_limits<double>::infinity());
}

TEST_CASE("codec: standard vocabulary types") {
  using namespace std::chrono_literals;
  same(std::string{});
  same(std::string("with\0zero", 9));
  same(std::string(100'000, 'x'));
  same(std::u16string(u"weft"));
  same(std::optional<int>{});
  same(std::optional<std::optional<std::string>>{std::optional<std::string>{}});
  same(std::variant<int, std::string, std::monostate>{std::string("two")});
  same(std::variant<int, int>{std::in_place_index<1>, 4});
  same(std::monostate{});
  same(std::pair<const int, std::string>{3, "three"});
  same(std::tuple<int, std::string, std::tuple<>>{1, "two", {}});
  same(std::array<std::string, 3>{"a", "", "c"});
  same(std::array<std::string, 100>{"a"});
  same(std::array<int, 0>{});
  same(std::array<float, 4>{1, 2, 3, 4});
  same(90s);
  same(std::chrono::duration<double, std::milli>(0.25));
  same(std::chrono::system_clock::time_point(123456789us));
  same(std::chrono::sys_days(std::chrono::days(20000)));
}

TEST_CASE("codec: containers") {
  same(std::vector<int>{});
  same(std::vector<int>{1, 2, 3});
  same(std::vector<std::complex<float>>{{1, 2}, {3, 4}});
  same(std::vector<bool>{true, false, true});
  same(std::vector<std::vector<std::string>>{{}, {"a"}, {"b", "c"}});
  same(std::deque<int>{1, 2});
  same(std::list<std::string>{"x", "y"});
  same(std::set<std::string>{"a", "b"});
  same(std::map<int, std::string>{{1, "a"}, {2, "b"}});
  same(std::unordered_map<std::string, int>{{"a", 1}, {"b", 2}, {"c", 3}});
  same(std::unordered_set<int>{5, 6, 7});
  same(std::vector<std::array<int, 0>>(3));
  same(std::vector<std::tuple<>>(3));
}

TEST_CASE("codec: aggregates, nested, with C arrays, empty ones, in order") {
  same(point{1, 2.5});
  same(empty{});
  same(deep{
      "n", {{1, 2}, {3, 4}}, colour::red, {{"k", {empty{}, empty{}}}}, {{1, 2, 3}, {4, 5, 6}}});
  const weft::frame f = pack(point{1, 2.5});
  CHECK(f.payload().size() == 12);
  CHECK(pack(empty{}).payload().size() == 1);
}

TEST_CASE("codec: values that can only be moved") {
  move_only value;
  value.p = std::make_unique<int>(7);
  value.more.push_back(nullptr);
  value.more.push_back(std::make_unique<std::string>("seven"));
  const move_only back = round_trip(value);
  CHECK(*back.p == 7);
  REQUIRE(back.more.size() == 2);
  CHECK(back.more[0] == nullptr);
  CHECK(*back.more[1] == "seven");
}

TEST_CASE("codec: types without default constructor, and the user's own functions") {
  same(no_default{no_default::id(1), {no_default::id(2), no_default::id(3)}});
  same(std::vector<silent>(5));
}

TEST_CASE("codec: recursive types up to a depth of 64") {
  same(tree{1, {tree{2, {}}, tree{3, {tree{4, {}}}}}});
  const auto back = round_trip(make_chain(64));
  int length = 0;
  for (const chain* c = back.get(); c; c = c->next.get()) ++length;
  CHECK(length == 64);
  const weft::error too_deep = error_of([] { (void)pack(make_chain(65)); });
  CHECK(too_deep == weft::errc::not_encodable);
  CHECK(too_deep.ran() == weft::call_progress::not_sent);
}

TEST_CASE("codec: what cannot be sent is not encodable") {
  CHECK(weft::encodable<deep>);
  CHECK(weft::encodable<tree>);
  CHECK_FALSE(weft::encodable<int*>);
  CHECK_FALSE(weft::encodable<std::string_view>);
  CHECK_FALSE(weft::encodable<std::span<int>>);
  CHECK_FALSE(weft::encodable<holds_pointer>);
  CHECK_FALSE(weft::encodable<std::vector<std::map<int, holds_pointer>>>);
  CHECK_FALSE(weft::encodable<closed>);
  CHECK_FALSE(weft::encodable<std::unique_ptr<closed>>);
  CHECK_FALSE(weft::encodable<std::chrono::steady_clock::time_point>);
  using culprit = weft::detail::culprit_of<std::vector<holds_pointer>>;
  CHECK(std::is_same_v<culprit::type, int*>);
  CHECK(std::is_same_v<culprit::holder, holds_pointer>);
  CHECK(culprit::index == 1);
}

TEST_CASE("codec: values that cost more memory than their bytes are padded and travel") {
  const std::vector<std::string> strings(100'000);
  const weft::frame f = pack(strings);
  CHECK((f.header.flags & weft::flag_padded) != 0);
  CHECK(weft::detail::budget_of(f.header.payload_bytes) >= strings.size() * sizeof(std::string));
  same(strings);
  std::map<int, char> map;
  for (int i = 0; i < 10'000; ++i) map[i] = 'x';
  same(map);
  same(std::list<std::uint8_t>(10'000, 1));
  CHECK((pack(std::vector<double>(100'000)).header.flags & weft::flag_padded) == 0);
}

TEST_CASE("codec: a whole payload is read in order and to its end") {
  weft::incoming_message in(pack(1, std::string("two"), 3.0));
  REQUIRE(in.check());
  weft::reader r = in.payload();
  CHECK(weft::decode_all<int, std::string, double>(r) ==
        std::tuple<int, std::string, double>(1, "two", 3.0));
  weft::reader shorter = in.payload();
  const weft::error left_over =
      error_of([&] { (void)weft::decode_all<int, std::string>(shorter); });
  CHECK(left_over == weft::errc::bad_arguments);
  CHECK(left_over.ran() == weft::call_progress::not_executed);
}

TEST_CASE("codec: an error names the field that did not decode") {
  weft::bytes raw;
  weft::message_extensions record;
  weft::writer w(raw, record);
  w.number(std::int32_t{1});
  w.number(1.0f);
  weft::reader r(raw.view(), record);
  const weft::error e = error_of([&] { (void)weft::decode_all<point>(r); });
  CHECK(e.detail().text.find("field 1 of") != std::string::npos);
  CHECK(e.detail().text.find("point") != std::string::npos);
}

TEST_CASE("codec: errors travel with their causes, bounded") {
  CHECK_FALSE(round_trip(weft::error{}));
  weft::error e(weft::errc::remote_exception, "it broke", weft::call_progress::executed,
                weft::origin::remote_user);
  e = e.with([](weft::error_detail& d) {
    d.peer = "ps";
    d.function = "app::f";
    d.incarnation = 7;
    d.deadline = std::chrono::seconds(3);
    d.elapsed = std::chrono::milliseconds(5);
    d.remote_type = "std::runtime_error";
    d.cause_code = std::make_error_code(std::errc::connection_reset);
    d.cause = weft::error(weft::errc::peer_died, "gone").shared_detail();
  });
  const weft::error back = round_trip(e);
  CHECK(back.code() == e.code());
  CHECK(back.message() == e.message());
  CHECK(back.detail().from == weft::origin::remote_user);
  CHECK(back.detail().incarnation == 7);
  CHECK(back.detail().deadline == std::chrono::seconds(3));
  CHECK(back.detail().remote_type == "std::runtime_error");
  CHECK(back.cause().code() == std::make_error_code(std::errc::connection_reset));

  weft::error tower(weft::errc::timed_out, std::string(100'000, 'x'));
  for (int i = 0; i < 20; ++i) {
    tower = weft::error(weft::errc::timed_out, "level").with([&](weft::error_detail& d) {
      d.cause_code = tower.code();
      d.cause = tower.shared_detail();
    });
  }
  int depth = 0;
  for (weft::error at = round_trip(tower); at; at = at.cause()) ++depth;
  CHECK(depth == 8);
  CHECK(round_trip(weft::error(weft::errc::timed_out, std::string(100'000, 'x')))
            .detail()
            .text.size() == 4096);
  const weft::error foreign(std::make_error_code(std::future_errc::no_state), nullptr);
  CHECK(round_trip(foreign) == weft::errc::remote_exception);
}
