// SPDX-License-Identifier: BSL-1.0
#include <weft/core/random.hpp>
#include <weft/core/system_random.hpp>

#include <doctest/doctest.h>

#include <string>

namespace core_random {

using weft::id128;

TEST_CASE("id128: text is 32 hexadecimal digits, high word first") {
  CHECK(id128{}.text() == std::string(32, '0'));
  CHECK(id128{0x0123456789abcdef, 0xfedcba9876543210}.text() == "0123456789abcdeffedcba9876543210");
}

TEST_CASE("id128: parse reads what text wrote") {
  weft::random_source source = [n = std::uint64_t{88172645463325252}]() mutable {
    n ^= n << 13;
    n ^= n >> 7;
    return n ^= n << 17;
  };
  for (int i = 0; i < 100; ++i) {
    const id128 id = weft::random_id(source);
    const auto read = id128::parse(id.text());
    REQUIRE(read);
    CHECK(*read == id);
  }
}

TEST_CASE("id128: parse refuses everything else") {
  const std::string good(32, 'a');
  CHECK(id128::parse(good));
  CHECK_FALSE(id128::parse(""));
  CHECK_FALSE(id128::parse(good.substr(1)));
  CHECK_FALSE(id128::parse(good + "a"));
  for (const char bad : {'g', 'A', ' ', '-', '\0', '/', ':'}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{15}, std::size_t{31}}) {
      std::string text = good;
      text[at] = bad;
      CAPTURE(text);
      CHECK_FALSE(id128::parse(text));
    }
  }
}

TEST_CASE("id128: secrets are equal only in every bit") {
  const id128 a{0x1111, 0x2222};
  CHECK(a.same_secret({0x1111, 0x2222}));
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t flip = std::uint64_t{1} << bit;
    CHECK_FALSE(a.same_secret({a.high ^ flip, a.low}));
    CHECK_FALSE(a.same_secret({a.high, a.low ^ flip}));
  }
}

TEST_CASE("random: an id takes two values of the source, high first") {
  std::uint64_t next = 0;
  weft::random_source source = [&] { return ++next; };
  CHECK(weft::random_id(source) == id128{1, 2});
  CHECK(weft::random_id(source) == id128{3, 4});
}

TEST_CASE("random: the system's source does not repeat itself") {
  weft::random_source source = weft::system_random();
  CHECK(weft::random_id(source) != weft::random_id(source));
}

}  // namespace core_random
