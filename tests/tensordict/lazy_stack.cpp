// SPDX-License-Identifier: BSL-1.0
// Lazy stacks and non-tensor data inside of tensordicts.
#include <weft/tensordict/ops.hpp>
#include <weft/tensordict/tensordict.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <string>
#include <tensordict/checks.hpp>
#include <vector>

namespace tensordict_lazy_stack {

using at::indexing::None;
using at::indexing::Slice;
using weft::lazy_stack;
using weft::non_tensor;
using weft::tensordict;
using weft::tensordict_errc;
using weft::testing::refused;

tensordict part(std::int64_t wide, float value) {
  return tensordict({{"x", at::full({2, wide}, value)}, {"y", at::full({2}, value)}}, {2});
}
lazy_stack ragged(std::int64_t dim = 1) { return lazy_stack({part(3, 0), part(4, 1)}, dim); }

TEST_CASE("lazy stack: sizes, keys, tensors") {
  const lazy_stack s = ragged(-1);
  CHECK(s.batch_size() == at::IntArrayRef{2, 2});
  CHECK(s.stack_dim() == 1);
  CHECK(s.keys() == std::vector<std::string>{"x", "y"});
  CHECK(s.tensor("y").equal(at::tensor({0.F, 1.F, 0.F, 1.F}).view({2, 2})));
  CHECK(refused([&] { return s.tensor("x"); }) == tensordict_errc::shape);
  CHECK(refused([&] { return s.tensor("z"); }) == tensordict_errc::no_key);
  CHECK(refused([&] { return s.dense(); }) == tensordict_errc::shape);
  CHECK(refused([&] { return s[2]; }) == tensordict_errc::index);
  CHECK(refused([&] { return lazy_stack({part(3, 0), tensordict()}); }) == tensordict_errc::shape);
  CHECK(refused([&] { return lazy_stack({part(3, 0), at::ones({2})}); }) == tensordict_errc::kind);
  CHECK(refused([&] { return lazy_stack({at::ones({2}), at::Tensor()}); }) ==
        tensordict_errc::kind);
  CHECK(refused([&] { return lazy_stack({part(3, 0)}, 2); }) == tensordict_errc::dimension);
  CHECK(s.to_string() == "LazyStackedTensorDict[2,2]{x: f32[-1], y: f32[]}");
  const std::vector<tensordict> of_dicts{part(3, 0), part(4, 1)};
  CHECK(lazy_stack::of(of_dicts, 1, "s").stack_dim_name() == "s");
  const lazy_stack even({part(3, 0), part(3, 1)}, 0);
  CHECK(even.dense().tensor("x").sizes() == at::IntArrayRef{2, 2, 3});
}

TEST_CASE("lazy stack: indexing is that of the stacked tensor, for each index") {
  // Of equal sizes, so that the dense one can be indexed, too.
  const lazy_stack s({part(3, 0) * at::Scalar(1), part(3, 1), part(3, 2)}, 1);
  const tensordict dense = s.dense();
  const at::Tensor numbers = at::arange(18, at::kFloat).view({2, 3, 3});
  for (std::int64_t i = 0; i < 3; ++i)
    s[static_cast<std::size_t>(i)].dict().tensor("x").copy_(numbers.select(1, i));
  const tensordict whole = s.dense();
  const at::Tensor mask2 = at::tensor({1, 0, 1, 0, 1, 1}).to(at::kBool).view({2, 3});
  const std::vector<std::vector<at::indexing::TensorIndex>> all{
      {0},
      {Slice(), 1},
      {Slice(), -1},
      {Slice(0, 1)},
      {Slice(), Slice(1, 3)},
      {None},
      {None, Slice(), None, Slice(0, 2)},
      {"...", 2},
      {"...", Slice(0, 3, 2)},
      {at::tensor({1, 0, 1}, at::kLong)},
      {at::tensor({1, 0}).to(at::kBool)},
      {Slice(), at::tensor({2, 0}, at::kLong)},
      {Slice(), at::tensor({1, 0, 1}).to(at::kBool)},
      {at::tensor({1, 0}, at::kLong), Slice(0, 2)},
      {at::tensor({1, 0}, at::kLong).view({2, 1}), Slice(0, 2)},
      {at::tensor({1, 0}, at::kLong), at::tensor({2, 2}, at::kLong)},
      {mask2},
      {true},
      {0, at::tensor({2, 1}, at::kLong)},
      {at::tensor({1}, at::kLong), None, Slice(1, 2)},
      {None, at::tensor({1}, at::kLong), Slice(1, 2)},
      {0, 0},
      {Slice(), at::tensor({2, 0, 1, 1}, at::kLong).view({2, 2})},
      {at::scalar_tensor(1, at::kLong)},
      {Slice(), at::scalar_tensor(1, at::kLong)},
      {at::tensor({1, 0}, at::kLong), at::scalar_tensor(2, at::kInt)},
  };
  for (const auto& index : all) {
    const weft::tensordict_value got = s.index(index);
    const tensordict want = whole.index(index);
    const tensordict have = got.is_stack() ? got.stack().dense() : got.dict();
    CHECK(have.batch_size() == want.batch_size());
    CHECK(have.tensor("x").equal(want.tensor("x")));
    CHECK(have.tensor("y").equal(want.tensor("y")));
  }
  CHECK(refused([&] { return s.index({Slice(), 3}); }) == tensordict_errc::index);
}

TEST_CASE("lazy stack: a slice that keeps index tensors apart keeps them apart") {
  std::vector<weft::tensordict_value> parts;
  for (int i = 0; i < 5; ++i)
    parts.emplace_back(tensordict({{"x", at::rand({2, 3, 4})}}, {2, 3, 4}));
  const lazy_stack s(parts, 2);
  const at::Tensor rows = at::tensor({2, 0, 1, 1, 0}, at::kLong);
  const at::Tensor last = at::tensor({3, 0, 1, 2, 0}, at::kLong);
  const tensordict whole = s.dense();
  for (const std::vector<at::indexing::TensorIndex>& index :
       {std::vector<at::indexing::TensorIndex>{Slice(), rows, Slice(), last},
        std::vector<at::indexing::TensorIndex>{Slice(), rows, Slice(1, 3)},
        std::vector<at::indexing::TensorIndex>{Slice(), rows, Slice(),
                                               at::scalar_tensor(1, at::kLong)},
        std::vector<at::indexing::TensorIndex>{Slice(), Slice(), Slice(1, 3), last}}) {
    const tensordict in({{"s", s}, {"t", whole}}, {2, 3, 5, 4});
    const tensordict got = in.index(index);
    const weft::tensordict_value& stack = got.get("s");
    const tensordict have = stack.is_stack() ? stack.stack().dense() : stack.dict();
    CHECK(have.batch_size() == got.batch_size());
    CHECK(have.tensor("x").equal(got.tensor({"t", "x"})));
  }
  const tensordict named({{"x", at::rand({2, 3, 4, 5})}}, {2, 3, 4, 5}, {"a", "b", "c", "d"});
  CHECK(
      named
          .index({Slice(), at::tensor({1, 0}, at::kLong), Slice(), at::scalar_tensor(1, at::kLong)})
          .names() == std::vector<std::string>{"a", "b", "c"});
}

TEST_CASE("lazy stack: a number written at an index is in what the index selects") {
  const auto made = [] {
    return tensordict({{"s", lazy_stack({tensordict({{"x", at::zeros({3})}}),
                                         tensordict({{"x", at::zeros({4})}})})},
                       {"r", lazy_stack({at::zeros({3}), at::zeros({4})})},
                       {"a", at::zeros({2})}},
                      {2});
  };
  tensordict td = made();
  td.index_put_({1}, 7);
  CHECK(td.tensor({"s", "0", "x"}).eq(0).all().item<bool>());
  CHECK(td.tensor({"s", "1", "x"}).eq(7).all().item<bool>());
  CHECK(td.tensor({"r", "0"}).eq(0).all().item<bool>());
  CHECK(td.tensor({"r", "1"}).eq(7).all().item<bool>());
  tensordict other = made();
  CHECK(refused([&] {
          other.index_put_({at::tensor({1}, at::kLong)}, 7);
          return 0;
        }) == tensordict_errc::kind);
  CHECK(other.tensor("a").eq(0).all().item<bool>());  // nothing was written
  CHECK(refused([&] {
          other.set_at_({"s", "0", "x"}, at::ones({}), {0});
          return 0;
        }) == tensordict_errc::kind);
}

TEST_CASE("lazy stack: an entry of a tensordict") {
  tensordict td({{"lz", ragged()}, {"a", at::arange(2)}, {"task", non_tensor("lift")}}, {2});
  CHECK(td.to_string() == "TensorDict(batch_size=[2], fields={\n    a: i64[],\n"
                          "    lz: LazyStackedTensorDict[2]{x: f32[-1], y: f32[]},\n"
                          "    task: str})");
  CHECK(td.contains({"lz", "1", "x"}));
  CHECK_FALSE(td.contains({"lz", "2", "x"}));
  CHECK_FALSE(td.contains({"lz", "x"}));
  CHECK(td.tensor({"lz", "1", "x"}).sizes() == at::IntArrayRef{2, 4});
  CHECK(refused([&] { return td.get({"lz", "x"}); }) == tensordict_errc::kind);
  CHECK(refused([&] { return td.tensor("lz"); }) == tensordict_errc::kind);
  CHECK(refused([&] { return td.data("a"); }) == tensordict_errc::kind);
  CHECK(refused([&] { return td.stack("task"); }) == tensordict_errc::kind);
  CHECK(refused([&] {
          td.set("wide", ragged(0).index({0}).dict().index({0}));
          return 0;
        }) == tensordict_errc::shape);
  CHECK(td.data("task").as_string() == "lift");
  CHECK(td.leaves().size() == 5);
  CHECK(td.bytes() == (6 + 2 + 8 + 2) * 4 + 16);

  // What leaves the parts as they are.
  CHECK(td.index({1}).stack("lz").batch_size() == at::IntArrayRef{2});
  CHECK(td.index({1}).data("task").as_string() == "lift");
  CHECK(td.unsqueeze(0).stack("lz").batch_size() == at::IntArrayRef{1, 2, 2});
  CHECK(td.reshape({2, 1}).tensor({"lz", "1", "x"}).sizes() == at::IntArrayRef{2, 1, 4});
  CHECK(td.expand({3, 2}).tensor({"lz", "0", "x"}).sizes() == at::IntArrayRef{3, 2, 3});
  CHECK((td + td).tensor({"lz", "1", "x"}).equal(at::full({2, 4}, 2.F)));
  CHECK(sum(td, 0).tensor({"lz", "1", "x"}).equal(at::full({4}, 2.F)));
  CHECK((td.to(at::kDouble).tensor({"lz", "0", "y"}).scalar_type() == at::kDouble));
  CHECK(td.clone().stack("lz")[0].dict().tensor("x").data_ptr() !=
        td.tensor({"lz", "0", "x"}).data_ptr());

  // Along the stack dimension itself.
  const tensordict inner({{"lz", ragged()}}, {2, 2});
  CHECK(inner.index({Slice(), 1}).tensor({"lz", "x"}).sizes() == at::IntArrayRef{2, 4});
  CHECK(inner.unbind(1)[0].tensor({"lz", "x"}).sizes() == at::IntArrayRef{2, 3});
  CHECK(inner.split(1, 1)[1].stack("lz").batch_size() == at::IntArrayRef{2, 1});
  CHECK(refused([&] { return inner.transpose(0, 1); }) == tensordict_errc::shape);
  CHECK(refused([&] { return sum(inner, 1); }) == tensordict_errc::shape);
}

TEST_CASE("lazy stack: stack and cat") {
  const tensordict td({{"lz", ragged()}, {"task", non_tensor("lift")}}, {2});
  tensordict other = td.clone();
  other.set("task", non_tensor(7));
  const std::vector<tensordict> both{td, other};
  const tensordict stacked = weft::stack(both, 1);
  CHECK(stacked.stack("lz").batch_size() == at::IntArrayRef{2, 2, 2});
  CHECK(stacked.stack("lz").stack_dim() == 2);  // part by part
  CHECK(stacked.stack("task").batch_size() == at::IntArrayRef{2, 2});
  CHECK(stacked.index({0, 0}).data("task").as_string() == "lift");
  CHECK(stacked.index({1, 1}).data("task").as_int() == 7);
  CHECK(stacked.select({"task"}).transpose(0, 1).index({1, 0}).data("task").as_int() == 7);
  CHECK(stacked.index({1, 1}).tensor({"lz", "1", "x"}).sizes() == at::IntArrayRef{4});
  const tensordict after = weft::cat(both);
  CHECK(after.tensor({"lz", "1", "x"}).sizes() == at::IntArrayRef{4, 4});
  CHECK(after.index({3}).data("task").as_int() == 7);
  CHECK(refused([&] { return sum(stacked.select({"task"}), 0); }) == tensordict_errc::kind);
  const std::vector<tensordict> wrong{
      td, tensordict({{"lz", at::ones({2})}, {"task", at::ones({2})}}, {2})};
  CHECK(refused([&] { return weft::stack(wrong); }) == tensordict_errc::kind);
}

TEST_CASE("lazy stack: parts of data and parts of tensordicts do not stand in one stack") {
  CHECK(refused([] {
          return lazy_stack({lazy_stack({non_tensor(1), non_tensor(2)}),
                             lazy_stack({tensordict(), tensordict()})});
        }) == tensordict_errc::kind);
}

TEST_CASE("lazy stack: stacks of other lengths, one after the other") {
  const auto of = [](std::int64_t n) {
    std::vector<weft::tensordict_value> rows;
    for (std::int64_t i = 0; i < n; ++i) rows.emplace_back(at::full({i + n}, n));
    return tensordict({{"rows", lazy_stack(std::move(rows))}}, {n});
  };
  const std::vector<tensordict> both{of(2), of(3)};
  const tensordict all = weft::cat(both);
  CHECK(all.batch_size() == at::IntArrayRef{5});
  CHECK(all.tensor({"rows", "4"}).size(0) == 5);
}

TEST_CASE("lazy stack: of tensors, a ragged tensor") {
  const lazy_stack rows({at::ones({2, 3}), at::zeros({5, 3}), at::ones({0, 3})});
  tensordict td({{"tokens", rows}, {"n", at::arange(3)}}, {3});
  CHECK(td.to_string() == "TensorDict(batch_size=[3], fields={n: i64[], tokens: f32[-1,3]})");
  CHECK(td.tensor({"tokens", "1"}).sizes() == at::IntArrayRef{5, 3});
  CHECK(td[1].tensor("tokens").sizes() == at::IntArrayRef{5, 3});
  CHECK(td.index({Slice(1)}).stack("tokens").batch_size() == at::IntArrayRef{2});
  CHECK(td.index({at::tensor({2, 0, 0}, at::kLong)}).tensor({"tokens", "1"}).size(0) == 2);
  CHECK(td.unbind()[2].tensor("tokens").numel() == 0);
  CHECK((td + td).tensor({"tokens", "0"}).equal(at::full({2, 3}, 2.F)));
  CHECK(td.leaves().size() == 4);
  const std::vector<tensordict> two{td, td};
  CHECK(weft::cat(two).stack("tokens").batch_size() == at::IntArrayRef{6});
  CHECK(weft::stack(two).tensor({"tokens", "1"}).sizes() == at::IntArrayRef{2, 5, 3});
  td.set_({"tokens", "1"}, at::full({5, 3}, 7.F));
  CHECK(rows[1].tensor().eq(7).all().item<bool>());
  CHECK(tensordict({{"tokens", rows}}).unsqueeze(0).tensor({"tokens", "1"}).sizes() ==
        at::IntArrayRef{1, 5, 3});
  CHECK(refused([&] { return td.reshape({3, 1}); }) == tensordict_errc::kind);
  CHECK(refused([&] { return sum(td, 0); }) == tensordict_errc::kind);
  CHECK(refused([&] { return rows.dense(); }) == tensordict_errc::kind);
  CHECK(refused([&] { return td.tensor({"tokens", "3"}); }) == tensordict_errc::no_key);
  CHECK(refused([&] {
          td.set("tokens", lazy_stack({at::ones({1})}));
          return 0;
        }) == tensordict_errc::shape);
  // A function that leaves some out keeps a stack whole.
  CHECK(refused([&] {
          return td.apply([](const at::Tensor& t) { return t.numel() == 6 ? at::Tensor() : t; });
        }) == tensordict_errc::kind);
  const tensordict only = tensordict({{"lz", ragged()}}, {2})
                              .named_apply([](const weft::key_path& key, const at::Tensor& t) {
                                return key[1] == "0" ? at::Tensor() : t;
                              });
  CHECK(only.stack("lz").batch_size() == at::IntArrayRef{2, 2});
}

TEST_CASE("lazy stack: parts are locked with what has them") {
  tensordict one = part(3, 0);
  tensordict td({{"lz", lazy_stack({one, part(4, 1)}, 1)}}, {2});
  td.lock_();
  CHECK(one.is_locked());
  CHECK(refused([&] {
          one.set("z", at::ones({2}));
          return 0;
        }) == tensordict_errc::locked);
  CHECK(refused([&] {
          one.unlock_();
          return 0;
        }) == tensordict_errc::locked);
  CHECK(refused([&] {
          td.set({"lz", "0", "z"}, at::ones({2}));
          return 0;
        }) == tensordict_errc::locked);
  td.unlock_();
  td.set({"lz", "0", "z"}, at::ones({2}));
  CHECK(one.contains("z"));
  CHECK(refused([&] {
          one.set("self", td);
          return 0;
        }) == tensordict_errc::kind);
}

TEST_CASE("non-tensor data: values, as JSON and back") {
  CHECK(non_tensor().to_string() == "null");
  CHECK(non_tensor(true).as_bool());
  CHECK(non_tensor(-3).as_int() == -3);
  CHECK(non_tensor(3U).as_double() == 3);
  CHECK(non_tensor(2.5F).as_double() == 2.5);
  CHECK(non_tensor(nlohmann::ordered_json{1, "b"}).to_string() == "[1,\"b\"]");
  const std::string odd = "{\"NaN\":[NaN,Infinity,-Infinity,\"NaN\",\"-Infinity\",1e400]}";
  CHECK(refused([&] { return non_tensor::parse(odd); }) == tensordict_errc::format);
  const auto nan = non_tensor::parse("{\"NaN\":[NaN,Infinity,-Infinity,\"NaN\",\"\\\\\\\"NaN\"]}");
  CHECK(nan.to_string() == "{\"NaN\":[NaN,Infinity,-Infinity,\"NaN\",\"\\\\\\\"NaN\"]}");
  CHECK(non_tensor(-std::numeric_limits<double>::infinity()).to_string() == "-Infinity");
  CHECK(non_tensor::parse("18446744073709551615").to_string() == "18446744073709551615");
  CHECK(refused([] { return non_tensor::parse("18446744073709551615").as_int(); }) ==
        tensordict_errc::kind);
  CHECK(refused([] { return non_tensor("x").as_int(); }) == tensordict_errc::kind);
  CHECK(refused([] { return non_tensor(2.5).as_int(); }) == tensordict_errc::kind);
  CHECK(non_tensor(std::uint64_t{1} << 63).to_string() == "9223372036854775808");
  CHECK(non_tensor(std::uint64_t{1} << 63).as_uint() == std::uint64_t{1} << 63);
  CHECK(refused([] { return non_tensor(-1).as_uint(); }) == tensordict_errc::kind);
  CHECK(non_tensor::parse("[\"\",NaN,\"\",null,Infinity]").to_string() ==
        "[\"\",NaN,\"\",null,Infinity]");
  for (const char* bad : {"{NaN:1}", "-NaN", "NaNNaN", "", "[", "{\"a\":1,\"a\":2}", "nan", "[1,]",
                          "NaN NaN", "\"\\xff\""}) {
    CHECK(refused([&] { return non_tensor::parse(bad); }) == tensordict_errc::format);
  }
  CHECK(refused([] { return non_tensor::parse(std::string(100000, '[')); }) ==
        tensordict_errc::format);
  // What took minutes or gigabytes once.
  CHECK(
      non_tensor::parse("\"" + std::string(1'000'000, '_') + "weft:number:\"").as_string().size() ==
      1'000'012);
  std::string words = "[\"" + std::string(5'000, '_') + "\"";
  for (int i = 0; i < 100'000; ++i) words += ",NaN";
  CHECK(non_tensor::parse(words + "]").json().size() == 100'001);
  std::string deep = "1";
  for (int i = 0; i < 600; ++i) deep = "[" + deep + "]";
  CHECK(refused([&] { return non_tensor::parse(deep); }) == tensordict_errc::format);
  CHECK(refused([] { return non_tensor(std::string("\xff")).to_string(); }) ==
        tensordict_errc::format);
}

}  // namespace tensordict_lazy_stack
