// SPDX-License-Identifier: BSL-1.0
// What replayed cases cannot say: which errors, locks, that handles share, that nothing is done by
// halves.
#include <weft/tensordict/ops.hpp>
#include <weft/tensordict/tensordict.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensordict_basics {

using weft::tensordict;
using weft::tensordict_errc;
using weft::tensordict_error;

tensordict small() {
  return {{{"a", at::arange(12, at::kFloat).reshape({3, 4})}, {"b", {{"c", at::ones({3, 2})}}}},
          {3}};
}

/// The code of the error that `f` throws, whose text has `words`.
tensordict_errc refused(const std::function<void()>& f, std::string_view words) {
  try {
    f();
  } catch (const tensordict_error& e) {
    INFO(std::string(e.what()));
    CHECK(std::string_view(e.what()).find(words) != std::string_view::npos);
    return e.code();
  }
  FAIL("not refused");
  return {};
}

TEST_CASE("tensordict: entries by a key, by keys, by a path that is known when it is compiled") {
  tensordict td = small();
  CHECK(td.tensor("a").sizes() == at::IntArrayRef({3, 4}));
  CHECK(td.tensor({"b", "c"}).is_same(td["b"]["c"].tensor()));
  CHECK(td.tensor(weft::path<"b", "c">).is_same(td["b"]["c"].tensor()));
  CHECK(td.tensor(weft::key_path{"b", "c"}).is_same(td["b"]["c"].tensor()));
  td["b"]["d"] = at::zeros({3});
  CHECK(td.dict("b").size() == 2);
  CHECK(td["a"]->sum().item<float>() == 66);
  const at::Tensor taken = td["a"];
  CHECK(taken.is_same(td.tensor("a")));
  td["n"]["m"]["o"] = at::zeros({3, 1});
  CHECK(td.contains({"n", "m", "o"}));
  td["copy"] = td["a"];
  CHECK(td.tensor("copy").is_same(taken));
}

TEST_CASE("tensordict: more entries than are searched one by one are found, in their order") {
  tensordict td(at::IntArrayRef{2});
  for (int i = 0; i < 100; ++i) td.set("k" + std::to_string(i), at::full({2}, i));
  for (int i = 0; i < 100; i += 3) td.erase("k" + std::to_string(i));
  std::vector<weft::key_path> keys;
  for (int i = 0; i < 100; ++i) {
    const std::string key = "k" + std::to_string(i);
    CHECK(td.contains(key) == (i % 3 != 0));
    if (i % 3 == 0) continue;
    keys.push_back({key});
    CHECK(td.tensor(key)[0].item<int>() == i);
  }
  CHECK(td.keys() == keys);
}

TEST_CASE("tensordict: errors have a code, the key and both shapes") {
  tensordict td = small();
  CHECK(refused([&] { static_cast<void>(td.tensor("x")); }, "'x'; there are: 'a', 'b'") ==
        tensordict_errc::no_key);
  CHECK(refused([&] { static_cast<void>(td.tensor({"b", "x"})); }, "('b', 'x')") ==
        tensordict_errc::no_key);
  CHECK(refused([&] { static_cast<void>(td.tensor({"a", "x"})); }, "is a tensor") ==
        tensordict_errc::kind);
  CHECK(refused([&] { static_cast<void>(td.tensor("b")); }, "is a tensordict") ==
        tensordict_errc::kind);
  CHECK(refused([&] { td.set("z", at::zeros({4})); }, "'z' has the sizes [4]") ==
        tensordict_errc::shape);
  CHECK(refused([&] { td.set("z", at::Tensor()); }, "'z' is undefined") == tensordict_errc::kind);
  CHECK(refused([&] { td.set(weft::key_path(), at::zeros({3})); }, "no names") ==
        tensordict_errc::no_key);
  CHECK(refused([&] { static_cast<void>(td[3]); }, "index 3") == tensordict_errc::index);
  CHECK(refused([&] { static_cast<void>(td.index({0, 0})); }, "2 dimensions") ==
        tensordict_errc::index);
  CHECK(refused([&] { static_cast<void>(td.unsqueeze(2)); }, "dimension 2") ==
        tensordict_errc::dimension);
  CHECK(refused([&] { static_cast<void>(tensordict(at::IntArrayRef{-1})); }, "[-1]") ==
        tensordict_errc::shape);
  CHECK(refused([&] { static_cast<void>(td.set("b.c", at::zeros({3})).flatten_keys()); },
                "'b.c'") == tensordict_errc::key_exists);
}

TEST_CASE("tensordict: a handle shares, a clone does not, and nothing contains itself") {
  tensordict td = small();
  tensordict same = td;
  same.set("d", at::zeros({3}));
  CHECK(td.contains("d"));
  tensordict other = td.clone(tensordict::recurse::no);
  other["b"]["e"] = at::zeros({3});
  CHECK_FALSE(td.contains({"b", "e"}));
  CHECK(other.tensor("a").is_same(td.tensor("a")));
  CHECK_FALSE(td.clone().tensor("a").is_same(td.tensor("a")));
  CHECK(refused([&] { td.set({"b", "up"}, td); }, "contain itself") == tensordict_errc::kind);
  CHECK(refused([&] { td.rename_key_("b", {"b", "x"}); }, "contain itself") ==
        tensordict_errc::kind);
}

TEST_CASE("tensordict: a locked one and what it has take no entries, and take values") {
  tensordict td = small();
  tensordict nested = td.dict("b");
  td.lock_();
  CHECK(nested.is_locked());
  CHECK(refused([&] { td.set("d", at::zeros({3})); }, "locked") == tensordict_errc::locked);
  CHECK(refused([&] { nested.erase("c"); }, "locked") == tensordict_errc::locked);
  CHECK(refused([&] { nested.unlock_(); }, "unlock that one") == tensordict_errc::locked);
  CHECK(refused([&] { td.index_put_({0}, tensordict({{"new", at::zeros({4})}})); }, "locked") ==
        tensordict_errc::locked);
  td.set_("a", at::zeros({3, 4}));
  CHECK(td["a"]->sum().item<float>() == 0);
  {
    tensordict second({{"n", nested}}, {3});
    second.lock_();
    td.unlock_();
    CHECK(nested.is_locked());
  }
  nested.unlock_();  // nobody that is locked has it any more
  CHECK_FALSE(nested.is_locked());
}

TEST_CASE("tensordict: what is refused changes nothing") {
  tensordict td = small();
  const std::string before = td.to_string();
  const tensordict bad({{"a", at::zeros({3, 4})}, {"n", {{"c", at::zeros({3, 2})}}}}, {3});
  tensordict worse = bad.clone();
  worse.lock_();
  td.dict("b").lock_();
  CHECK(refused(
            [&] {
              td.update(tensordict({{"z", at::zeros({3})}, {"b", {{"c", at::zeros({3})}}}}, {3}));
            },
            "('b', 'c')") == tensordict_errc::locked);
  CHECK(td.to_string() == before);
  CHECK(refused(
            [&] { td.update_(tensordict({{"a", at::zeros({3, 4})}, {"x", at::zeros({3})}}, {3})); },
            "'x'") == tensordict_errc::no_key);
  CHECK(td["a"]->sum().item<float>() == 66);
  CHECK(refused(
            [&] {
              td.index_put_({0},
                            tensordict({{"a", at::zeros({4})}, {"b", {{"c", at::zeros({5})}}}}));
            },
            "('b', 'c')") == tensordict_errc::shape);
  // Both are of the right number of elements, and the second has a dimension too many.
  const tensordict longer({{"a", at::zeros({3, 4})}, {"b", {{"c", at::zeros({1, 3, 2})}}}});
  CHECK(refused([&] { td.update_(longer); }, "[1, 3, 2]") == tensordict_errc::shape);
  CHECK(td["a"]->sum().item<float>() == 66);
  CHECK(td.to_string() == before);
}

TEST_CASE("tensordict: a batch size that cannot be is refused, and changes no nested one") {
  tensordict td({{"x", {{"c", at::ones({3, 2})}}}, {"y", {{"c", at::ones({3, 2})}}}}, {3});
  td.dict("y").lock_();
  const std::string before = td.to_string();
  CHECK(refused([&] { td.batch_size_({3, 2}); }, "locked") == tensordict_errc::locked);
  CHECK(td.to_string() == before);
  CHECK(refused([&] { tensordict().batch_size_({-3}); }, "[-3]") == tensordict_errc::shape);
  const std::int64_t large = std::int64_t{1} << 40;
  CHECK(refused([&] { tensordict().batch_size_({large, large}); }, "") == tensordict_errc::shape);
}

TEST_CASE("tensordict: what was changed in place behind its back is an error, not a wild read") {
  tensordict td = small();
  tensordict nested = td.dict("b");
  nested.batch_size_({});
  CHECK(refused([&] { static_cast<void>(td.unsqueeze(0)); }, "changed in place") ==
        tensordict_errc::shape);
  CHECK(refused([&] { static_cast<void>(td.to_string()); }, "changed in place") ==
        tensordict_errc::shape);
  tensordict other = small();
  const at::Tensor a = other["a"];
  a.resize_({0});
  a.resize_(at::IntArrayRef());
  CHECK(refused([&] { static_cast<void>(other.view({3, 1})); }, "changed in place") ==
        tensordict_errc::shape);
}

TEST_CASE("tensordict: views share memory, and an assignment by index writes into it") {
  tensordict td = small();
  tensordict first = td.index({at::indexing::Slice(0, 2)});
  first.zero_();
  CHECK(td["a"]->sum().item<float>() == 8 + 9 + 10 + 11);
  td.view({3, 1}).tensor("a").fill_(1);
  CHECK(td["a"]->sum().item<float>() == 12);
  td.index_put_({at::indexing::Slice(1)}, 5);
  CHECK(td["a"]->sum().item<float>() == 4 + 40);
}

TEST_CASE("tensordict: what is compared, reduced and masked fits, or is refused") {
  const tensordict td = small();
  CHECK(weft::all(td == td));
  CHECK_FALSE(weft::any(td != td));
  CHECK(weft::allclose(td + 1, td * 1 + 1));
  CHECK_FALSE(weft::allclose(td, td + 1));
  CHECK_FALSE(weft::allclose(td, td.exclude({"a"})));
  CHECK(weft::sum(td).tensor("a").item<float>() == 66);
  CHECK(refused([&] { static_cast<void>(td + td.exclude({{"b", "c"}})); }, "('b', 'c')") ==
        tensordict_errc::no_key);
  CHECK(refused([&] { static_cast<void>(td + td.unsqueeze(0)); }, "[3] and [1, 3]") ==
        tensordict_errc::shape);
  CHECK(refused([&] { static_cast<void>(td + at::ones({4})); }, "[4]") == tensordict_errc::shape);
  CHECK(refused([&] { static_cast<void>(weft::masked_fill(td, at::ones({3}), 0)); }, "bool") ==
        tensordict_errc::shape);
}

TEST_CASE("tensordict: an update by one's own entry, and one that would make a circle") {
  tensordict td;
  for (int i = 0; i < 40; ++i) td.set({"a", "a", std::to_string(i)}, at::full({1}, i));
  td.set({"a", "z"}, at::ones({1}));
  td.update(td.dict("a"));
  CHECK(td.contains("z"));
  CHECK(td.contains({"a", "0"}));
  tensordict a;
  tensordict b;
  tensordict both({{"a", a}, {"b", b}});
  CHECK_THROWS_AS(both.update(tensordict({{"a", {{"p", b}}}, {"b", {{"q", a}}}})),
                  weft::tensordict_error);
  CHECK(a.is_empty());
  CHECK(a.size() + b.size() == 0);
}

TEST_CASE("tensordict: an assignment by index that is refused has written nothing") {
  tensordict td({{"a", at::zeros({2})}}, {2});
  const tensordict value({{"a", at::ones({})}, {"n", {{"s", weft::lazy_stack({tensordict()})}}}});
  CHECK_THROWS_AS(td.index_put_({0}, value), weft::tensordict_error);
  CHECK(td.tensor("a").eq(0).all().item<bool>());
  CHECK(td.size() == 1);
}

// What would change a temporary alone does not compile.
static_assert(!std::is_assignable_v<tensordict, tensordict>);
static_assert(std::is_assignable_v<tensordict&, tensordict>);
static_assert(!std::is_assignable_v<decltype(std::declval<tensordict>()["a"]), at::Tensor>);
static_assert(std::is_assignable_v<decltype(std::declval<tensordict&>()["a"]), at::Tensor>);

TEST_CASE("tensordict: an entry of a temporary is read") {
  const tensordict td({{"a", at::arange(4)}, {"n", {{"b", at::arange(4)}}}}, {4});
  CHECK(td[1]["a"]->item<std::int64_t>() == 1);
  CHECK(td[1]["n"]["b"]->item<std::int64_t>() == 1);
  const at::Tensor t = td.index({at::indexing::Slice(2)})["a"];
  CHECK(t.size(0) == 2);
  CHECK(weft::stack({td, td}).batch_size() == at::IntArrayRef{2, 4});
  CHECK(weft::cat({td, td}, 0).batch_size() == at::IntArrayRef{8});
}

TEST_CASE("tensordict: data that are put at an index") {
  using weft::non_tensor;
  tensordict td({{"x", at::zeros({4})}, {"task", non_tensor("lift")}}, {4});
  const tensordict same({{"x", at::ones({2})}, {"task", non_tensor("lift")}}, {2});
  td.index_put_({at::indexing::Slice(0, 2)}, same);
  CHECK(td.data("task").as_string() == "lift");
  tensordict locked = td.clone();
  locked.lock_().index_put_({at::indexing::Slice(0, 2)}, same);
  tensordict other = same.clone();
  other.set("task", non_tensor("drop"));
  other.set("more", non_tensor(1));
  CHECK_THROWS_AS(locked.index_put_({at::indexing::Slice(0, 2)}, other), weft::tensordict_error);
  td.index_put_({at::tensor({3, 1}, at::kLong)}, other);
  CHECK(td[3].data("task").as_string() == "drop");
  CHECK(td[2].data("task").as_string() == "lift");
  CHECK(td[1].data("more").as_int() == 1);
  CHECK(td[0].data("more").to_string() == "null");
  CHECK(weft::allclose(td[1], other[0]));
  CHECK_FALSE(weft::allclose(td[1], same[0]));
  tensordict wrong({{"x", at::zeros({4})}, {"task", at::zeros({4})}}, {4});
  CHECK_THROWS_AS(wrong.index_put_({at::indexing::Slice(0, 2)}, same), weft::tensordict_error);
  CHECK(wrong.tensor("x").eq(0).all().item<bool>());
}

TEST_CASE("tensordict: more dimensions or names than there may be are refused at once") {
  CHECK_THROWS_AS(tensordict(std::vector<std::int64_t>(65, 1)), weft::tensordict_error);
  CHECK_NOTHROW(tensordict(std::vector<std::int64_t>(64, 1)));
  CHECK_THROWS_AS(tensordict().set(weft::key_path(200'000, "a"), at::ones({})),
                  weft::tensordict_error);
}

TEST_CASE("tensordict: what a table of Python's methods names") {
  const at::Tensor x = at::arange(1, 13, at::kFloat).view({2, 3, 2});
  tensordict td({{"x", x.clone()}, {"n", {{"y", at::ones({2, 3}, at::kLong)}}}}, {2, 3});
  CHECK(td.dim() == 2);
  CHECK(td.numel() == 6);
  CHECK(td.keys().size() == 2);
  CHECK(td.keys(tensordict::nested::yes, tensordict::leaves_only::yes).size() == 2);
  CHECK_FALSE(td.is_empty());
  CHECK(td.empty(tensordict::recurse::yes).is_empty());
  CHECK(td.empty(tensordict::recurse::yes).contains("n"));
  CHECK((td / at::Scalar(2)).tensor("x").equal(x / 2));
  CHECK((-td).tensor("x").equal(-x));
  CHECK(mean(td.select({"x"})).tensor("x").equal(x.mean()));
  CHECK(norm(td.select({"x"})).tensor("x").equal(x.norm()));
  CHECK((td.to(at::kDouble).tensor({"n", "y"}).scalar_type() == at::kDouble));
  CHECK(td.to(at::Device(at::kCPU)).tensor("x").equal(x));
  CHECK(td.transpose(0, 1).contiguous().tensor("x").is_contiguous());
  CHECK(td.unflatten(1, {3, 1}).tensor("x").sizes() == at::IntArrayRef{2, 3, 1, 2});
  CHECK(td.gather(1, at::zeros({2, 1}, at::kLong)).tensor("x").equal(x.slice(1, 0, 1)));
  const tensordict trained({{"w", at::ones({2}).requires_grad_()}});
  CHECK_FALSE(trained.detach().tensor("w").requires_grad());

  // Of each tensor: those by name in Python are functions of libtorch here.
  CHECK(td.apply([](const at::Tensor& t) { return t.exp(); }).tensor("x").equal(x.exp()));
  CHECK(td.named_apply([](const weft::key_path& key, const at::Tensor& t) {
            return key.back() == "y" ? t : at::Tensor();
          }).size() == 1);
  tensordict other = td.clone();
  other.apply_([](const at::Tensor& t) { return t * 2; });
  CHECK(other.tensor("x").equal(x * 2));
  CHECK(td.tensor("x").equal(x));
  CHECK_THROWS_AS(other.apply_([](const at::Tensor&) { return at::ones({7}); }),
                  weft::tensordict_error);

  // Writing.
  const at::Tensor before = other.tensor("x");
  other.update_(td);
  CHECK(before.equal(x));
  other.copy_(td * at::Scalar(3));
  CHECK(before.equal(x * 3));
  other.zero_().fill_({"n", "y"}, 4);
  CHECK(before.eq(0).all().item<bool>());
  CHECK(other.tensor({"n", "y"}).eq(4).all().item<bool>());
  other.set_at_("x", at::ones({3, 2}), {0});
  CHECK(before.sum().item<float>() == 6);
  const at::Tensor mask = at::eye(2, 3).to(at::kBool);
  other.index_put_({mask}, at::Scalar(9));
  CHECK(before.index({mask}).eq(9).all().item<bool>());
  const tensordict replaced = td.replace(tensordict({{"x", at::zeros({2, 3})}}, {2, 3}));
  CHECK(replaced.tensor("x").dim() == 2);
  CHECK(td.tensor("x").dim() == 3);
  CHECK(td.clone().pop("x").tensor().equal(x));
  const auto [mine, rest] = td.split_keys({"x"});
  CHECK(mine.contains("x"));
  CHECK_FALSE(rest.contains("x"));
  if (!other.contains("z")) other.set({"n", "z"}, x);
  CHECK(other.tensor({"n", "z"}).is_same(x));

  // As one state.
  const tensordict::state_type state = td.state_dict();
  CHECK(state.size() == 2);
  CHECK(state[1].first == "n.y");
  tensordict loaded = td.clone().zero_();
  loaded.load_state_dict(state);
  CHECK(weft::allclose(loaded, td));
  CHECK(td.cpu().tensor("x").equal(td.tensor("x")));
  tensordict::state_type lacks{state[0]};
  CHECK_THROWS_AS(loaded.load_state_dict(lacks), weft::tensordict_error);
  lacks.emplace_back("n.z", state[1].second);
  CHECK_THROWS_AS(loaded.load_state_dict(lacks), weft::tensordict_error);
  lacks = {state[0], {"n.y", at::ones({7})}};
  CHECK_THROWS_AS(loaded.zero_().load_state_dict(lacks), weft::tensordict_error);
  CHECK(loaded.tensor("x").eq(0).all().item<bool>());

  // Batch size, names, locks.
  tensordict loose(
      {{"a", at::zeros({3, 4})}, {"n", tensordict({{"b", at::zeros({3, 4, 5})}}, {3})}});
  CHECK(loose.auto_batch_size_().batch_size() == at::IntArrayRef{3, 4});
  CHECK(loose.dict("n").batch_size() == at::IntArrayRef{3, 4, 5});
  CHECK(tensordict({{"a", at::zeros({3, 4})}}).auto_batch_size_(1).batch_size() ==
        at::IntArrayRef{3});
  td.names_({"time", ""});
  CHECK(td.names() == std::vector<std::string>{"time", ""});
  CHECK(td.unflatten(0, {1, 2}).names() == std::vector<std::string>{"", "time", ""});
  CHECK_THROWS_AS(td.names_({"one"}), weft::tensordict_error);
  td.lock_();
  CHECK(td.is_locked());
  CHECK_THROWS_AS(td.auto_batch_size_(), weft::tensordict_error);
  {
    const weft::unlock_scope open(td);
    td.set("more", at::ones({2, 3}));
  }
  CHECK(td.is_locked());
  CHECK(td.contains("more"));
  td.unlock_();
  CHECK_FALSE(td.is_locked());
}

}  // namespace tensordict_basics
