// SPDX-License-Identifier: BSL-1.0
#include <weft/tensordict/codec.hpp>
#include <weft/wire/detail/tensor_table.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
#include <wire/packed.hpp>
#include <wire/sent_over.hpp>

namespace tensordict_codec {

using weft::tensordict;

tensordict sample() {
  tensordict td(
      {{"obs", at::arange(12, at::kFloat).reshape({3, 4})},
       {"", at::zeros({3}, at::kBool)},
       {"next", {{"reward", at::ones({3, 1}, at::kBFloat16)}, {"a.b", at::rand({3, 2})}}}},
      {3}, {"time"});
  td.set("wide", tensordict({{"x", at::ones({3, 2, 2}, at::kComplexFloat)}}, {3, 2}));
  td.set("none", tensordict(at::IntArrayRef{3}));
  return td;
}

void require_same(const tensordict& a, const tensordict& b) {
  CHECK(a.to_string() == b.to_string());
  CHECK(a.names() == b.names());
  const auto mine = a.leaves();
  const auto theirs = b.leaves();
  REQUIRE(mine.size() == theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    CHECK(mine[i].first == theirs[i].first);
    CHECK(mine[i].second.equal(theirs[i].second));
  }
}

TEST_CASE("tensordict codec: what is sent is what arrives, unlocked, in memory of its own") {
  for (const tensordict& td : {sample(), tensordict(), tensordict(at::IntArrayRef{0, 2})}) {
    tensordict sent = td;
    sent.lock_();
    auto copy = weft_test::copy_of(weft_test::pack(sent, 7));
    REQUIRE(copy);
    const auto [got, seven] = weft_test::unpack<tensordict, int>(*std::move(copy));
    CHECK(seven == 7);
    require_same(got, td);
    CHECK_FALSE(got.is_locked());
  }
}

TEST_CASE("tensordict codec: a view of a larger one arrives as what is seen") {
  const tensordict part = sample().index({at::indexing::Slice(1)});
  auto copy = weft_test::copy_of(weft_test::pack(part));
  REQUIRE(copy);
  require_same(std::get<0>(weft_test::unpack<tensordict>(*std::move(copy))), part);
}

TEST_CASE("tensordict codec: bytes that were changed are refused, or another tensordict") {
  std::mt19937 random(7);
  const weft::frame whole = weft_test::pack(sample());
  const std::size_t payload = whole.header.payload_bytes;
  std::size_t refused = 0;
  constexpr int tries = 20'000;
  for (int i = 0; i < tries; ++i) {
    auto f = weft_test::copy_of(whole);
    REQUIRE(f);
    const std::size_t changes = 1 + random() % 3;
    for (std::size_t n = 0; n < changes; ++n) {
      const std::size_t at = weft::header_size + random() % payload;
      f->head.data()[at] = random() % 2 == 0 ? std::byte(random() % 4) : std::byte(random());
    }
    try {
      const auto [got] = weft_test::unpack<tensordict>(*std::move(f));
      // Whole, whatever it is.
      CHECK_NOTHROW(static_cast<void>(got.clone().to_string()));
      for (const auto& [key, t] : got.leaves()) CHECK(t.sizes().size() >= got.batch_size().size());
    } catch (const weft::rpc_error& e) {
      ++refused;
      CHECK(e.error() == weft::errc::bad_arguments);
    }
  }
  CHECK(refused > tries / 4);
}

}  // namespace tensordict_codec
