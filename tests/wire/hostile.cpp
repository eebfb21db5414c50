// SPDX-License-Identifier: BSL-1.0
// What a hostile peer may send instead of a message: a typed error, or the frame is what it now
// says; never a crash, never more memory than its bytes pay for.
#include "allocations.hpp"
#include "everything.hpp"
#include "packed.hpp"
#include "sent_over.hpp"
#include <weft/wire/codec.hpp>
#include <weft/wire/error_codec.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/tensor_desc.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <core/error_of.hpp>
#include <random>
#include <string>
#include <vector>

namespace {

using weft_test::colour;
using weft_test::everything;
using weft_test::leaf;
using weft_test::pack;
using weft_test::tree;

everything specimen() {
  everything e{true,
               colour::green,
               "a text that is longer than a short string",
               {"a", "", "ccc"},
               {1, 2, 3},
               {{"x", {1, 2}}, {"y", {}}},
               {{1, 'a'}, {2, 'b'}},
               {5, 6},
               {"n"},
               {1, 2},
               {{1, true}},
               std::vector<int>{9, 8},
               std::make_unique<leaf>(leaf{4, "l"}),
               {{{true, false}, {}}},
               {},
               {}};
  e.root = tree{{1, {}}, {}};
  e.root.children.push_back(tree{{2, "two"}, {}});
  e.trouble = weft::error(weft::errc::timed_out, "slow").with([](weft::error_detail& d) {
    d.cause_code = weft::make_error_code(weft::errc::peer_died);
  });
  return e;
}

enum class outcome { decoded, refused };

// Decodes `payload` as a T and holds it to the budget.
template <class T>
outcome decode_within_budget(std::span<const std::byte> payload,
                             weft::reader::tail tail = weft::reader::tail::exact) {
  weft::message_extensions record;
  weft::reader r(payload, record, weft::default_limits, tail);
  auto& count = weft_test::allocations();
  const std::uint64_t before = count.bytes;
  outcome result = outcome::decoded;
  try {
    (void)weft::decode_all<T>(r);
  } catch (const weft::rpc_error& e) {
    const bool typed = e.error() == weft::errc::bad_arguments &&
                       e.error().ran() == weft::call_progress::not_executed;
    if (!typed) CHECK(e.error().message() == "");
    result = outcome::refused;
  }
  // With the received bytes themselves 4x + 64 KiB; the error's text is small and apart.
  const std::uint64_t spent = count.bytes - before;
  const std::uint64_t allowed = 3 * payload.size() + 60 * 1024 + 4 * 1024;
  if (spent > allowed) CHECK(spent <= allowed);
  return result;
}

template <class T>
void attack(const T& value) {
  const weft::frame good = pack(value);
  REQUIRE((good.header.flags & weft::flag_padded) == 0);
  const auto payload = good.payload();
  REQUIRE(decode_within_budget<T>(payload) == outcome::decoded);
  for (std::size_t n = 0; n < payload.size(); ++n) {  // in memory of its own size, for ASan
    const weft::blob cut = weft_test::copy_of(payload.first(n));
    if (decode_within_budget<T>({cut.data(), n}) == outcome::decoded) CHECK(n == payload.size());
  }
  std::vector<std::byte> bad(payload.begin(), payload.end());
  for (std::size_t i = 0; i < bad.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bad[i] ^= static_cast<std::byte>(1 << bit);
      (void)decode_within_budget<T>(bad);
      bad[i] ^= static_cast<std::byte>(1 << bit);
    }
  }
  for (std::size_t i = 0; i + 4 <= bad.size(); ++i) {
    const auto left = static_cast<std::uint32_t>(bad.size() - i - 4);
    const auto was = weft::detail::load<std::uint32_t>(bad.data() + i);
    for (const std::uint32_t lie : {0u, 1u, was + 1, was - 1, left, left + 1, left / 4,
                                    left / 4 + 1, 0x7FFF'FFFFu, 0x8000'0000u, 0xFFFF'FFFFu}) {
      weft::detail::store(bad.data() + i, lie);
      (void)decode_within_budget<T>(bad);
    }
    weft::detail::store(bad.data() + i, was);
  }
  bad.push_back(std::byte{0});
  CHECK(decode_within_budget<T>(bad) == outcome::refused);
  CHECK(decode_within_budget<T>(bad, weft::reader::tail::zeros) == outcome::decoded);
  bad.back() = std::byte{1};
  CHECK(decode_within_budget<T>(bad, weft::reader::tail::zeros) == outcome::refused);
}

// The largest count that the bytes allow, of elements that cost much more in memory.
template <class T>
void bomb(std::size_t element_bytes) {
  for (const std::size_t size : {std::size_t{4096}, std::size_t{1} << 20}) {
    std::vector<std::byte> payload(size);
    weft::detail::store(payload.data(), static_cast<std::uint32_t>((size - 4) / element_bytes));
    (void)decode_within_budget<T>(payload, weft::reader::tail::zeros);
  }
}

/// As many copies of `element` in one container as a payload of that size pays for.
template <class Container>
Container most_of(const typename Container::value_type& element, std::size_t payload_size) {
  const weft::frame one = pack(element);
  REQUIRE((one.header.flags & weft::flag_padded) == 0);
  const auto bytes = one.payload();
  std::vector<std::byte> payload(payload_size);
  const std::size_t fit = (payload_size - 4) / bytes.size();
  for (std::size_t i = 0; i < fit; ++i) {
    std::copy(bytes.begin(), bytes.end(),
              payload.begin() + static_cast<std::ptrdiff_t>(4 + i * bytes.size()));
  }
  const auto decoded = [&](std::size_t n) -> std::optional<Container> {
    std::vector<std::byte> asked(
        payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(4 + n * bytes.size()));
    asked.resize(payload_size);
    weft::detail::store(asked.data(), static_cast<std::uint32_t>(n));
    weft::message_extensions record;
    weft::reader r(asked, record, weft::default_limits, weft::reader::tail::zeros);
    try {
      return std::get<0>(weft::decode_all<Container>(r));
    } catch (const weft::rpc_error& e) {
      CHECK(e.error() == weft::errc::bad_arguments);
      return std::nullopt;
    }
  };
  std::size_t some = 0, too_many = fit + 1;
  while (too_many - some > 1) {  // bounded: by the bits of a number
    const std::size_t between = some + (too_many - some) / 2;
    (decoded(between) ? some : too_many) = between;
  }
  Container most = *decoded(some);
  CHECK(most.size() == some);
  return most;
}

/// What a value holds is what a copy of it allocates, and 16 bytes more for each allocation.
template <class Container>
void holds_what_was_paid(const typename Container::value_type& element) {
  constexpr std::size_t size = std::size_t{1} << 18;
  const Container most = most_of<Container>(element, size);
  CHECK(most.size() > 0);
  auto& count = weft_test::allocations();
  const auto before = count;
  {
    const Container copy = most;
    const std::uint64_t held =
        count.bytes - before.bytes + weft::detail::allocation_cost * (count.calls - before.calls);
    CHECK(held <= weft::detail::budget_of(size));
    CHECK(copy.size() == most.size());
  }
}

weft::frame frame_with_sections() {
  weft::message m;
  weft::encode_all(m.payload(), std::string("payload"), 7);
  const std::byte a[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  m.section(weft::section_kind::rref, a);
  m.section(weft::section_kind::trace, {});
  m.section(weft::section_kind::autograd, std::span(a).first(1));
  weft::frame_header h;
  h.kind = weft::frame_kind::request;
  h.call = 0x0000'0003'0000'0005;
  h.function = 0x1234;
  h.signature = 9;
  h.deadline = 1'000'000;
  h.trace = 1;
  h.span = 2;
  return std::move(m).finish(h);
}

// As a connection does it: header first, then as many bytes as it says.
weft::expected<weft::frame> receive(std::span<const std::byte> wire) {
  if (wire.size() < weft::header_size) {
    return tl::unexpected(weft::error(weft::errc::closed));
  }
  auto h = weft::decode_header(wire.first<weft::header_size>(), weft::default_limits);
  if (!h) return tl::unexpected(h.error());
  if (wire.size() - weft::header_size < h->payload_bytes + h->table_bytes) {
    return tl::unexpected(weft::error(weft::errc::closed));
  }
  weft::frame f;
  f.header = *h;
  f.head.append(wire.data(), weft::header_size + h->payload_bytes + h->table_bytes);
  std::size_t at = f.head.size();
  for (std::uint16_t i = 0; i < h->tensors; ++i) {
    const std::uint64_t n = f.blob_length(i);
    if (n > wire.size() - at) return tl::unexpected(weft::error(weft::errc::closed));
    f.blobs.push_back(weft_test::copy_of(wire.subspan(at, n)));
    at += n;
  }
  return f;
}

}  // namespace

TEST_CASE("hostile: truncated, flipped and lying payloads of every codec") {
  attack(specimen());
  attack(std::vector<std::string>{"one", "two"});
  attack(std::map<std::string, int>{{"a", 1}, {"b", 2}});
  attack(tree{{1, "x"}, {}});
  attack(weft::error(weft::errc::remote_exception, "text"));
}

TEST_CASE("hostile: counts that the bytes allow but memory does not are refused") {
  bomb<std::vector<std::string>>(4);
  bomb<std::vector<std::vector<int>>>(4);
  bomb<std::list<bool>>(1);
  bomb<std::deque<std::optional<std::array<double, 8>>>>(1);
  bomb<std::vector<std::optional<std::array<double, 64>>>>(1);
  bomb<std::vector<std::unique_ptr<everything>>>(1);
  bomb<std::vector<tree>>(7);
  bomb<std::vector<std::variant<std::monostate, std::array<int, 100>>>>(2);
  bomb<std::vector<weft::error>>(1);
  std::vector<std::byte> zeros(1 << 20);
  weft::detail::store(zeros.data(), std::uint32_t{200'000});
  CHECK(decode_within_budget<std::vector<std::string>>(zeros, weft::reader::tail::zeros) ==
        outcome::refused);
}

TEST_CASE("hostile: as many containers as a payload pays for hold no more than it paid for" *
          doctest::test_suite("all")) {
  using std::deque, std::vector;
  // Empty ones that allocate all the same.
  holds_what_was_paid<vector<deque<int>>>({});
  holds_what_was_paid<vector<deque<std::array<char, 600>>>>({});
  holds_what_was_paid<std::list<deque<char>>>({});
  holds_what_was_paid<deque<deque<int>>>({});
  holds_what_was_paid<vector<std::pair<bool, deque<bool>>>>({});
  holds_what_was_paid<vector<std::optional<deque<bool>>>>(deque<bool>{});
  holds_what_was_paid<vector<std::unordered_set<int>>>({});
  holds_what_was_paid<vector<std::unordered_map<int, int>>>({});
  // Small ones.
  holds_what_was_paid<vector<deque<std::uint8_t>>>({1});
  holds_what_was_paid<vector<vector<bool>>>({true});
  holds_what_was_paid<vector<vector<bool>>>(vector<bool>(65));
  holds_what_was_paid<vector<vector<char>>>({'a'});
  holds_what_was_paid<vector<std::list<char>>>({'a'});
  holds_what_was_paid<vector<std::set<char>>>({'a'});
  holds_what_was_paid<vector<std::map<char, char>>>({{'a', 'b'}});
  holds_what_was_paid<vector<std::string>>(std::string(16, 'a'));
  holds_what_was_paid<vector<std::u32string>>(std::u32string(4, U'a'));
  for (int n = 1; n <= 40; ++n) {
    CAPTURE(n);
    std::unordered_set<std::uint8_t> set;
    std::unordered_map<std::uint8_t, bool> map;
    for (int i = 0; i < n; ++i) {
      set.insert(static_cast<std::uint8_t>(i));
      map.emplace(i, false);
    }
    holds_what_was_paid<vector<decltype(set)>>(set);
    holds_what_was_paid<vector<decltype(map)>>(map);
  }
  // Where blocks of a deque are full, and where its table of blocks has just grown.
  for (const std::size_t n : {127u, 128u, 129u, 639u, 640u, 1151u, 1152u}) {
    CAPTURE(n);
    holds_what_was_paid<vector<deque<int>>>(deque<int>(n));
    holds_what_was_paid<vector<deque<bool>>>(deque<bool>(n));
  }
  for (const std::size_t n : {1u, 4u, 5u, 6u, 12u, 60u}) {
    CAPTURE(n);
    holds_what_was_paid<vector<deque<std::optional<std::array<char, 300>>>>>(
        deque<std::optional<std::array<char, 300>>>(n));
    holds_what_was_paid<vector<deque<std::optional<std::array<char, 700>>>>>(
        deque<std::optional<std::array<char, 700>>>(n));
  }
}

TEST_CASE("hostile: maps and sets of many small elements stay within the budget") {
  std::vector<std::byte> payload(4 + 8 * 1000);
  weft::detail::store(payload.data(), std::uint32_t{1000});
  for (std::uint32_t i = 0; i < 1000; ++i) weft::detail::store(payload.data() + 4 + 8 * i, i);
  CHECK(decode_within_budget<std::map<int, int>>(payload) == outcome::decoded);
  CHECK(decode_within_budget<std::unordered_map<int, int>>(payload) == outcome::decoded);
  weft::detail::store(payload.data() + 4 + 8 * 999, std::uint32_t{5});
  CHECK(decode_within_budget<std::map<int, int>>(payload) == outcome::refused);
  CHECK(decode_within_budget<std::unordered_map<int, int>>(payload) == outcome::refused);
}

// n keys of 8 bytes that all fall into one bucket of a container with room for n.
template <class Container>
std::vector<std::byte> colliding(std::uint32_t n, std::size_t element_bytes) {
  Container probe;
  probe.reserve(n);
  std::vector<std::byte> payload(4 + element_bytes * n);
  weft::detail::store(payload.data(), n);
  for (std::uint64_t i = 0; i < n; ++i) {
    weft::detail::store(payload.data() + 4 + element_bytes * i, i * probe.bucket_count());
  }
  return payload;
}
struct poor_hash {
  std::size_t operator()(int) const { return 1; }
};

TEST_CASE("hostile: keys that a peer chose to collide are refused before they cost much") {
  using set = std::unordered_set<std::uint64_t>;
  using map = std::unordered_map<std::uint64_t, std::uint64_t>;
  // Square of 200,000: minutes.
  CHECK(decode_within_budget<set>(colliding<set>(200'000, 8)) == outcome::refused);
  CHECK(decode_within_budget<map>(colliding<map>(200'000, 16)) == outcome::refused);
  // A few collide, or a user's hash is poor, and it is fine.
  CHECK(decode_within_budget<set>(colliding<set>(1000, 8)) == outcome::decoded);
  std::unordered_set<int, poor_hash> poor;
  for (int i = 0; i < 1200; ++i) poor.insert(i);
  const weft::frame sent = pack(poor);
  CHECK(decode_within_budget<decltype(poor)>(sent.payload(), weft::reader::tail::zeros) ==
        outcome::decoded);
}

TEST_CASE("hostile: a value nested without end is refused at depth 64") {
  std::vector<std::byte> payload;
  for (int i = 0; i < 100'000; ++i) {
    payload.insert(payload.end(), {std::byte{0}, std::byte{0}, std::byte{0}});  // leaf
    payload.insert(payload.end(), {std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}});
  }
  CHECK(decode_within_budget<tree>(payload, weft::reader::tail::zeros) == outcome::refused);
}

TEST_CASE("hostile: random bytes as values") {
  std::mt19937 random(20'26);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> payload(random() % 300);
    const bool small = random() % 3 != 0;
    for (auto& b : payload) b = static_cast<std::byte>(small ? random() % 4 : random());
    (void)decode_within_budget<everything>(payload);
    (void)decode_within_budget<std::vector<tree>>(payload);
    (void)decode_within_budget<std::vector<std::map<std::string, leaf>>>(payload);
    (void)decode_within_budget<weft::error>(payload);
  }
}

TEST_CASE("hostile: each bit of header and table flipped") {
  const weft::frame good = frame_with_sections();
  std::vector<std::byte> wire(good.head.view().begin(), good.head.view().end());
  REQUIRE(receive(wire).has_value());
  std::size_t accepted = 0, refused = 0;
  for (std::size_t i = 0; i < wire.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      wire[i] ^= static_cast<std::byte>(1 << bit);
      if (auto f = receive(wire)) {
        // It is what it now says: written again it is the same bytes.
        std::array<std::byte, weft::header_size> again{};
        weft::encode_header(f->header, again);
        CHECK(std::equal(again.begin(), again.end(), wire.begin()));
        weft::incoming_message in(std::move(*f));
        if (auto ok = in.check(); !ok) {
          CHECK(ok.error() == weft::errc::protocol_error);
          ++refused;
        } else {
          ++accepted;
          // A section lies in the table that came, behind its own length and kind.
          const auto table = in.whole().table();
          for (const auto kind : {weft::section_kind::tensors, weft::section_kind::rref,
                                  weft::section_kind::autograd, weft::section_kind::trace}) {
            if (const auto s = in.section(kind)) {
              CHECK(s->data() >= table.data() + 8);
              CHECK(s->data() + s->size() <= table.data() + table.size());
            }
          }
        }
      } else {
        const weft::error& e = f.error();
        const bool typed = e == weft::errc::protocol_error || e == weft::errc::version_mismatch ||
                           e == weft::errc::message_too_large || e == weft::errc::closed;
        CHECK(typed);
        ++refused;
      }
      wire[i] ^= static_cast<std::byte>(1 << bit);
    }
  }
  CHECK(accepted > 0);
  CHECK(refused > 0);
}

TEST_CASE("hostile: header lengths of 0, maximum and one beyond") {
  const weft::frame good = frame_with_sections();
  const weft::limits& limit = weft::default_limits;
  auto with = [&](auto change) {
    weft::frame_header h = good.header;
    change(h);
    std::byte raw[weft::header_size] = {};
    weft::encode_header(h, raw);
    return weft::decode_header(raw, limit);
  };
  CHECK(with([&](auto& h) { h.payload_bytes = limit.payload; }).has_value());
  CHECK(with([&](auto& h) { h.payload_bytes = limit.payload + 1; }).error() ==
        weft::errc::message_too_large);
  CHECK(with([&](auto& h) { h.payload_bytes = ~std::uint64_t{0}; }).error() ==
        weft::errc::message_too_large);
  CHECK(with([&](auto& h) { h.table_bytes = 0; }).error() == weft::errc::protocol_error);
  CHECK(with([&](auto& h) {
          h.table_bytes = static_cast<std::uint32_t>(limit.table + 1);
        }).error() == weft::errc::message_too_large);
  CHECK(with([&](auto& h) { h.tensors = static_cast<std::uint16_t>(limit.tensors + 1); }).error() ==
        weft::errc::message_too_large);
  CHECK(with([&](auto& h) { h.sections = 0xFFFF; }).error() == weft::errc::protocol_error);
}

TEST_CASE("hostile: every truncation of a frame's head, and a table that says less or more") {
  const weft::frame good = frame_with_sections();
  for (std::size_t n = 0; n < good.head.size(); ++n) {
    CHECK_FALSE(receive(good.head.view().first(n)).has_value());
  }
  const std::size_t table = weft::header_size + good.header.payload_bytes;
  for (std::uint32_t less = 1; less <= good.header.table_bytes; ++less) {
    weft::frame f = std::move(*weft_test::copy_of(good));
    f.header.table_bytes -= less;
    f.head.resize(f.head.size() - less);
    weft::incoming_message in(std::move(f));
    CHECK_FALSE(in.check().has_value());
  }
  for (const std::uint32_t length : {0u, 2u, 4u, 0xFFFFu, 0x7FFF'FFFFu, 0xFFFF'FFFFu}) {
    weft::frame f = std::move(*weft_test::copy_of(good));
    weft::detail::store(f.head.data() + table + 4, length);
    weft::incoming_message in(std::move(f));
    CHECK(in.check().error() == weft::errc::protocol_error);
  }
  weft::frame twice = std::move(*weft_test::copy_of(good));
  weft::detail::store(twice.head.data() + table + 8 + 3, weft::section_kind::rref);
  CHECK(weft::incoming_message(std::move(twice)).check().error() == weft::errc::protocol_error);
}

TEST_CASE("hostile: tensor descriptors beyond their buffer or the limits") {
  const weft::blob buffer = weft_test::copy_of(std::vector<std::byte>(48));
  const std::vector<weft::blob> buffers{buffer};
  auto judge = [&](auto change) {
    weft::tensor_desc d;
    d.dtype = 6;  // float
    d.layout = weft::tensor_layout::strided;
    d.ndim = 2;
    d.buffer = 0;
    d.size = {3, 4};
    d.stride = {4, 1};
    change(d);
    weft::bytes section(8);
    weft::detail::store(section.data(), std::uint32_t{1});
    weft::detail::store(section.data() + 4, std::uint32_t{1});
    weft::encode_desc(section, d);
    return weft::check_tensors(section.view(), buffers);
  };
  constexpr std::int64_t most = std::int64_t{1} << 48;
  CHECK(judge([](auto&) {}) == "");
  CHECK(judge([](auto& d) { d.stride = {0, 0}; }) == "");
  CHECK(judge([](auto& d) { d.size = {1, most}, d.stride = {most, 0}; }) == "");
  CHECK(judge([](auto& d) { d.size[0] = 4; }) != "");
  CHECK(judge([](auto& d) { d.size[0] = -1; }) != "");
  CHECK(judge([](auto& d) { d.size = {1, most + 1}, d.stride = {0, 0}; }) != "");
  CHECK(judge([](auto& d) { d.size = {most, most}, d.stride = {0, 0}; }) != "");
  CHECK(judge([](auto& d) { d.size = {most, most}, d.stride = {most, most}; }) != "");
  CHECK(judge([](auto& d) { d.size = {most, 2}, d.stride = {most, most}; }) != "");  // 2^96
  CHECK(judge([](auto& d) { d.stride[0] = -1; }) != "");
  CHECK(judge([](auto& d) { d.stride[0] = 5; }) != "");
  CHECK(judge([](auto& d) { d.stride[0] = std::numeric_limits<std::int64_t>::max(); }) != "");
  CHECK(judge([](auto& d) { d.offset = 4; }) != "");
  CHECK(judge([](auto& d) { d.offset = 2; }) != "");
  CHECK(judge([](auto& d) { d.offset = ~std::uint64_t{0} - 3; }) != "");
  CHECK(judge([](auto& d) { d.dtype = 7; }) != "");
  CHECK(judge([](auto& d) { d.dtype = 12; }) != "");
  CHECK(judge([](auto& d) { d.dtype = 255; }) != "");
  CHECK(judge([](auto& d) { d.buffer = 1; }) != "");
  CHECK(judge([](auto& d) { d.buffer = weft::no_buffer; }) != "");
  CHECK(judge([](auto& d) { d.flags = 2; }) != "");
  CHECK(judge([](auto& d) { d.dtype = 3, d.flags = 1; }) != "");
  CHECK(judge([](auto& d) { d.size = {0, most}; }) != "");  // empty, yet it names a buffer
  CHECK(judge([](auto& d) { d.ndim = 64, d.size.fill(1), d.stride.fill(1); }) == "");
  // The buffer is there, but no tensor uses it.
  CHECK(judge([](auto& d) { d.size = {0, 4}, d.buffer = weft::no_buffer; }) ==
        "a tensor buffer that no tensor uses");
}

TEST_CASE("hostile: the sender's own limits are typed errors before anything is sent") {
  weft::limits small;
  small.payload = 100;
  small.table = 64;
  small.tensors = 1;
  const auto error_of = [](auto&& f) {
    const weft::error e = weft::testing::error_of(f);
    CHECK(e.ran() == weft::call_progress::not_sent);
    return e;
  };
  CHECK(error_of([&] {
          weft::message m(small);
          weft::encode_all(m.payload(), std::string(101, 'x'));
        }) == weft::errc::message_too_large);
  CHECK(error_of([&] {
          weft::message m(small);
          for (const int i : std::array<int, 26>{}) weft::encode_all(m.payload(), i);
          (void)std::move(m).finish({});
        }) == weft::errc::message_too_large);
  CHECK(error_of([&] {
          weft::message m(small);
          m.section(weft::section_kind::trace, std::vector<std::byte>(60));
          (void)std::move(m).finish({});
        }) == weft::errc::message_too_large);
  CHECK(error_of([&] {
          weft::message m(small);
          (void)m.add_blob({});
          (void)m.add_blob({});
        }) == weft::errc::message_too_large);
  CHECK(error_of([&] {
          weft::message m(small);
          m.section(weft::section_kind::trace, {});
          m.section(weft::section_kind::trace, {});
        }) == weft::errc::invalid_argument);
}
