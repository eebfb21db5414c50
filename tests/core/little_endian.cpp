// SPDX-License-Identifier: BSL-1.0
#include <weft/core/detail/little_endian.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace core_little_endian {

using weft::detail::byte_sink;
using weft::detail::byte_source;
using weft::detail::load;
using weft::detail::store;

enum class colour : std::uint16_t { red, green = 0x0102 };

template <class T>
constexpr bool comes_back(T value) {
  std::array<std::byte, sizeof(T) + 2> at{};
  at.fill(std::byte{0xA5});
  store(at.data() + 1, value);
  return load<T>(at.data() + 1) == value && at.front() == std::byte{0xA5} &&
         at.back() == std::byte{0xA5};
}

static_assert(comes_back(std::uint8_t{0xFF}));
static_assert(comes_back(std::numeric_limits<std::int64_t>::min()));
static_assert(comes_back(-1.5));
static_assert(comes_back(colour::green));

TEST_CASE("little_endian: the lowest byte comes first") {
  std::array<std::byte, 4> at{};
  store(at.data(), std::uint32_t{0x01020304});
  CHECK((at == std::array{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}}));
  store(at.data(), colour::green);
  CHECK((at == std::array{std::byte{2}, std::byte{1}, std::byte{2}, std::byte{1}}));
}

struct record {
  std::uint64_t number = 0;
  colour shade = colour::red;
  std::vector<std::uint32_t> all;
  std::vector<std::byte> raw;
  bool whole = false;
};

record read(std::span<const std::byte> bytes) {
  byte_source in(bytes);
  record out;
  out.number = in.get<std::uint64_t>();
  out.shade = in.get_enum(colour::green);
  out.all = in.get_all<std::uint32_t>();
  const auto raw = in.get_raw(3);
  out.raw.assign(raw.begin(), raw.end());
  out.whole = in.at_end();
  return out;
}

std::vector<std::byte> written() {
  byte_sink to;
  to.put(std::uint64_t{7});
  to.put(colour::green);
  to.put_all(std::vector<std::uint32_t>{10, 11});
  to.put_raw(std::array{std::byte{1}, std::byte{2}, std::byte{3}});
  return to.take();
}

TEST_CASE("little_endian: what was written is read, and nothing else is whole") {
  const std::vector<std::byte> bytes = written();
  REQUIRE(bytes.size() == 8 + 2 + 4 + 8 + 3);
  const record r = read(bytes);
  CHECK(r.whole);
  CHECK(r.number == 7);
  CHECK((r.shade == colour::green));
  CHECK((r.all == std::vector<std::uint32_t>{10, 11}));
  CHECK((r.raw == std::vector{std::byte{1}, std::byte{2}, std::byte{3}}));

  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CAPTURE(length);
    // A copy of that length, so that a sanitizer sees a read behind its end.
    const record cut = read(std::vector(bytes.begin(), bytes.begin() + std::ptrdiff_t(length)));
    CHECK_FALSE(cut.whole);
    CHECK(cut.raw.empty());
    if (length < 8) CHECK(cut.number == 0);
    if (length < 10) CHECK((cut.shade == colour::red));
    if (length < 22) CHECK(cut.all.empty());
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  CHECK_FALSE(read(longer).whole);
}

TEST_CASE("little_endian: a count that the bytes do not hold allocates nothing") {
  std::vector<std::byte> bytes(4 + 16, std::byte{0xFF});
  byte_source in(bytes);
  CHECK(in.get_all<std::uint64_t>().capacity() == 0);
  CHECK_FALSE(in.ok());
  CHECK(in.get<std::uint8_t>() == 0);  // and stays so, though bytes are left
}

TEST_CASE("little_endian: an enumerator above the last is none") {
  byte_sink to;
  to.put(std::uint16_t{0x0103});
  const auto bytes = to.take();
  byte_source in(bytes);
  CHECK((in.get_enum(colour::green) == colour::red));
  CHECK_FALSE(in.ok());
}

}  // namespace core_little_endian
