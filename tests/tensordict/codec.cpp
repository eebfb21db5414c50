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
#include <tensordict/checks.hpp>
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
  td.set("nothing", at::ones({3, 0}));
  td.set("ragged", weft::lazy_stack({at::ones({1}), at::ones({4}), at::ones({2})}));
  td.set("task", weft::non_tensor("lift"));
  td.set("lz", weft::lazy_stack({tensordict({{"x", at::rand({3, 2})}}, {3}),
                                 tensordict({{"x", at::rand({3, 4})}}, {3})},
                                1, "part"));
  td.set("words",
         weft::lazy_stack({weft::non_tensor(1), weft::non_tensor(), weft::non_tensor("b")}));
  return td;
}

void require_same(const tensordict& a, const tensordict& b) {
  weft::testing::require_same(a, b);
  const auto mine = a.leaves();
  const auto theirs = b.leaves();  // in the same order, too
  for (std::size_t i = 0; i < mine.size(); ++i) CHECK(mine[i].first == theirs[i].first);
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

TEST_CASE("tensordict codec: a consolidated one is one buffer, and arrives as one") {
  const tensordict td = sample();
  const tensordict one = td.consolidate();
  CHECK(one.is_consolidated());
  for (const auto& [key, t] : one.leaves()) {
    CHECK(t.storage_offset() * static_cast<std::int64_t>(t.itemsize()) % 64 == 0);
    CHECK(t.storage().is_alias_of(one.buffer().storage()));
  }
  const weft::frame sent = weft_test::pack(one);
  CHECK(sent.blobs.size() == 1);
  auto copy = weft_test::copy_of(sent);
  REQUIRE(copy);
  const auto [got] = weft_test::unpack<tensordict>(*std::move(copy));
  require_same(got, td);
  CHECK(got.is_consolidated());
  CHECK(got.is_locked());
  CHECK(got.data("task") == td.data("task"));
  CHECK(got.stack("words")[2].data().as_string() == "b");

  // No longer one: written as it is.
  tensordict open = td.consolidate();
  open.unlock_();
  CHECK_FALSE(open.is_consolidated());
  CHECK(weft_test::pack(open).blobs.size() > 1);
  // A tensor that was given other memory is not in the buffer any more.
  tensordict moved = td.consolidate();
  at::Tensor(moved.tensor("obs")).set_data(at::ones({3, 4}));
  auto second = weft_test::copy_of(weft_test::pack(moved));
  REQUIRE(second);
  CHECK(std::get<0>(weft_test::unpack<tensordict>(*std::move(second)))
            .tensor("obs")
            .equal(at::ones({3, 4})));
}

TEST_CASE(
    "tensordict consolidate: into memory that is there, by several threads, without history") {
  const tensordict large({{"a", at::rand({1 << 20})}, {"b", at::rand({1 << 19, 3}).t()}});
  const at::Tensor into = at::empty({large.bytes() + 100}, at::kByte).fill_(255);
  for (const unsigned threads : {1U, 2U, 7U}) {
    const tensordict one = large.consolidate(threads, into);
    CHECK(one.buffer().data_ptr() == into.data_ptr());
    CHECK(one.tensor("a").equal(large.tensor("a")));
    CHECK(one.tensor("b").equal(large.tensor("b")));
  }
  CHECK(weft::testing::refused([&] { return large.consolidate(1, at::empty({10}, at::kByte)); }) ==
        weft::tensordict_errc::shape);
  CHECK(weft::testing::refused([&] {
          return large.consolidate(1, at::empty({large.bytes() + 64}, at::kByte).slice(0, 1));
        }) == weft::tensordict_errc::shape);
  // Its own memory is not taken; nothing that stood behind is sent.
  const tensordict small({{"a", at::ones({4})}, {"b", at::zeros({4})}});
  const tensordict own = small.consolidate();
  CHECK(weft::testing::refused([&] {
          return tensordict({{"b", own.tensor("b")}, {"a", own.tensor("a")}})
              .consolidate(1, own.buffer());
        }) == weft::tensordict_errc::shape);
  CHECK(small.consolidate(1, into).buffer().numel() == 128);
  const tensordict trained({{"w", at::ones({2}).requires_grad_()}});
  CHECK(weft::testing::refused([&] { return trained.consolidate(); }) ==
        weft::tensordict_errc::history);
  const at::NoGradGuard none;
  CHECK_FALSE(trained.consolidate().tensor("w").requires_grad());
  CHECK(tensordict().consolidate().is_consolidated());
}

TEST_CASE("tensordict codec: a lazy stack of its own") {
  const weft::lazy_stack rows({at::ones({1}), at::zeros({4})});
  auto copy = weft_test::copy_of(weft_test::pack(rows));
  REQUIRE(copy);
  const auto [got] = weft_test::unpack<weft::lazy_stack>(*std::move(copy));
  CHECK(got[1].tensor().equal(at::zeros({4})));
  auto other = weft_test::copy_of(weft_test::pack(sample()));
  REQUIRE(other);
  CHECK_THROWS_AS(static_cast<void>(weft_test::unpack<weft::lazy_stack>(*std::move(other))),
                  weft::rpc_error);
}

TEST_CASE("tensordict codec: a bool that is neither true nor false is refused") {
  const tensordict one = tensordict({{"b", at::zeros({64}, at::kBool)}}).consolidate();
  one.buffer().fill_(255);
  auto copy = weft_test::copy_of(weft_test::pack(one));
  REQUIRE(copy);
  CHECK_THROWS_AS(static_cast<void>(weft_test::unpack<tensordict>(*std::move(copy))),
                  weft::rpc_error);
}

TEST_CASE("tensordict codec: as many tensors as there may be") {
  tensordict td;
  for (int i = 0; i < 12'000; ++i) td.set(std::to_string(i), at::full({4}, i));
  for (const tensordict& sent : {td, td.consolidate()}) {
    auto copy = weft_test::copy_of(weft_test::pack(sent));
    REQUIRE(copy);
    const auto [got] = weft_test::unpack<tensordict>(*std::move(copy));
    CHECK(got.size() == 12'000);
    CHECK(got.tensor("11999").equal(at::full({4}, 11'999)));
  }
}

TEST_CASE("tensordict codec: bytes that were changed are refused, or another tensordict") {
  std::mt19937 random(7);
  for (const bool consolidated : {false, true}) {
    const weft::frame whole = weft_test::pack(consolidated ? sample().consolidate() : sample());
    const std::size_t payload = whole.header.payload_bytes;
    std::size_t refused = 0;
    constexpr int tries = 10'000;
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
        for (const auto& [key, t] : got.leaves())
          CHECK(t.sizes().size() >= got.batch_size().size());
      } catch (const weft::rpc_error& e) {
        ++refused;
        CHECK(e.error() == weft::errc::bad_arguments);
      }
    }
    CHECK(refused > tries / 8);
  }
}

}  // namespace tensordict_codec
