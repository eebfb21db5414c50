// SPDX-License-Identifier: BSL-1.0
// Tensordicts in files: there and back, and files that are not what they should be.
#include <weft/tensordict/files.hpp>
#include <weft/tensordict/ops.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include <core/temporary_folder.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <tensordict/checks.hpp>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace tensordict_files {

namespace fs = std::filesystem;
using at::indexing::Slice;
using weft::lazy_stack;
using weft::non_tensor;
using weft::tensordict;
using weft::tensordict_errc;
using weft::tensordict_error;
using weft::testing::refused;

struct folder : weft::testing::temporary_folder {
  [[nodiscard]] fs::path operator/(const std::string& name) const { return root / name; }
};

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_all(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// All dtypes, and names that need care. `plain`: what safetensors can have.
tensordict sample(bool plain) {
  tensordict td(
      {{"a/b %", at::rand({2, 3})},
       {"", at::arange(2)},
       {"..", at::zeros({2}, at::kBool)},
       {"none", at::zeros({2, 0})},
       {"next", {{"\xc3\xbc", at::rand({2}).to(at::kBFloat16)}, {"task", non_tensor("x")}}},
       {"said", non_tensor::parse("{\"k\":[1,2.5,null,NaN]}")}},
      {2}, {"time"});
  for (const auto type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kHalf, at::kDouble,
                          at::kComplexFloat, at::kUInt16, at::kUInt32, at::kUInt64}) {
    td.set("t " + std::string(c10::toString(type)), at::ones({2}).to(type));
  }
  td.set("strided", at::arange(12).view({2, 6}).slice(1, 0, 6, 2));
  td.set("wide", tensordict({{"x", at::rand({2, 4, 1})}}, {2, 4}));
  if (plain) return td;
  td.set("double", at::ones({2}, at::kComplexDouble));
  td.set("lz", lazy_stack({tensordict({{"x", at::rand({2, 3})}}, {2}),
                           tensordict({{"x", at::rand({2, 4})}, {"y", at::rand({2})}}, {2})},
                          1, "s"));
  td.set("words", lazy_stack({non_tensor("a"), non_tensor(2)}, 0));
  return td;
}
tensordict with_ragged(tensordict td) {
  td.set("tokens", lazy_stack({at::rand({2, 3}), at::rand({5, 3})}));
  return td;
}

void require_same(const tensordict& a, const tensordict& b) {
  weft::testing::require_same(a, b);
  CHECK(a.data("said").to_string() == b.data("said").to_string());
}

TEST_CASE("tensordict files: what is written is what is read, in each format") {
  const folder in;
  const tensordict td = sample(false);
  weft::to_consolidated(td, in / "a.td");
  const tensordict one = weft::from_consolidated(in / "a.td");
  require_same(td, one);
  CHECK(one.is_consolidated());
  CHECK(one.is_locked());
  require_same(td, weft::memmap(td, in / "m"));
  require_same(td, weft::load_memmap(in / "m"));
  require_same(td, weft::load_memmap(in / "m", weft::memmap_mode::copied));
  const tensordict plain = sample(true);
  weft::to_safetensors(plain, in / "a.safetensors");
  require_same(plain, weft::from_safetensors(in / "a.safetensors"));

  // Again, over what is there; and a consolidated one.
  weft::to_consolidated(one, in / "a.td");
  require_same(td, weft::from_consolidated(in / "a.td"));
  require_same(td, weft::memmap(weft::load_memmap(in / "m"), in / "m"));
  CHECK(std::distance(fs::directory_iterator(in / ""), {}) == 3);  // nothing else is left there

  const lazy_stack root = td.stack("lz");
  weft::to_consolidated(root, in / "lz.td");
  CHECK(refused([&] { static_cast<void>(weft::from_consolidated(in / "lz.td")); }, "lz.td holds") ==
        tensordict_errc::kind);
  CHECK(weft::from_consolidated<lazy_stack>(in / "lz.td").batch_size() == root.batch_size());
  static_cast<void>(weft::memmap(root, in / "lz"));
  CHECK(weft::load_memmap<lazy_stack>(in / "lz")[1].dict().tensor("x").equal(
      root[1].dict().tensor("x")));
}

TEST_CASE("tensordict files: ragged tensors, in one file") {
  const folder in;
  tensordict td(
      {{"tokens", lazy_stack({at::rand({2, 3}), at::rand({5, 3})})},
       {"across", lazy_stack({at::rand({3, 2}), at::rand({3, 0})})},
       {"even", lazy_stack({at::arange(2), at::arange(2)})},
       {"n", {{"deep", lazy_stack({at::ones({1}, at::kBool), at::ones({4}, at::kBool)})}}}},
      {2});
  weft::to_consolidated(td, in / "f");
  const tensordict got = weft::from_consolidated(in / "f");
  CHECK(got.to_string() == td.to_string());
  for (const auto& [key, t] : td.leaves()) CHECK(got.tensor(key).equal(t));
  weft::to_consolidated(got, in / "g");
  CHECK(read_all(in / "f") == read_all(in / "g"));
  CHECK(refused([&] { weft::memmap(td, in / "m"); }, "tokens") == tensordict_errc::kind);
  CHECK(refused([&] { weft::to_safetensors(td, in / "g"); }) == tensordict_errc::kind);
  const tensordict wrong({{"x", lazy_stack({at::ones({2, 3}), at::ones({3, 2})})}});
  CHECK(refused([&] { weft::to_consolidated(wrong, in / "g"); }, "'x'") == tensordict_errc::kind);
  const tensordict taken({{"<NJT_VALUES>x", at::ones({2})}});
  CHECK(refused([&] { weft::to_consolidated(taken, in / "g"); }) == tensordict_errc::key_exists);
}

TEST_CASE("tensordict files: what a format has no place for is refused before a file is replaced") {
  const folder in;
  const auto keep = [&](const std::string& name) { return read_all(in / name) == "before"; };
  write_all(in / "f", "before");
  const tensordict taken({{"leaves", {{"x", at::ones({1})}}}});
  CHECK(refused([&] { weft::to_consolidated(taken, in / "f"); }, "leaves") ==
        tensordict_errc::key_exists);
  CHECK(refused([&] { weft::memmap(tensordict({{"shape", at::ones({1})}}), in / "m"); }, "shape") ==
        tensordict_errc::key_exists);
  const tensordict twice({{"a.b", at::ones({1})}, {"a", {{"b", at::ones({1})}}}});
  CHECK(refused([&] { weft::to_safetensors(twice, in / "f"); }, "a.b") ==
        tensordict_errc::key_exists);
  const tensordict complex({{"c", at::ones({1}, at::kComplexDouble)}});
  CHECK(refused([&] { weft::to_safetensors(complex, in / "f"); }, "'c'") == tensordict_errc::kind);
  const tensordict sparse({{"s", at::ones({2, 2}).to_sparse()}});
  CHECK(refused([&] { weft::to_consolidated(sparse, in / "f"); }, "'s'") == tensordict_errc::kind);
  CHECK(refused([&] { weft::to_safetensors(sample(false), in / "f"); }) == tensordict_errc::kind);
  CHECK(keep("f"));
  CHECK(refused([&] { weft::to_consolidated(taken.empty(), in / "no" / "f"); }, "no/f") ==
        tensordict_errc::file);
  CHECK(refused([&] { static_cast<void>(weft::from_consolidated(in / "none")); }, "none") ==
        tensordict_errc::file);
  CHECK(refused([&] { static_cast<void>(weft::load_memmap(in / "f")); }) == tensordict_errc::file);
}

/// Files get no longer, as if the disk were full.
class file_size_limit {
 public:
  explicit file_size_limit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit tight{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  }
  ~file_size_limit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    static_cast<void>(::signal(SIGXFSZ, handler_));
  }
  file_size_limit(const file_size_limit&) = delete;
  file_size_limit& operator=(const file_size_limit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_CASE("tensordict files: a disk without room is an error, and the old file stays") {
  const folder in;
  const tensordict small({{"x", at::ones({4})}});
  const tensordict large({{"x", at::ones({1 << 20})}});
  weft::to_consolidated(small, in / "f");
  {
    const file_size_limit tight(1 << 16);
    CHECK(refused([&] { weft::to_consolidated(large, in / "f"); }) == tensordict_errc::file);
    CHECK(refused([&] { weft::to_safetensors(large, in / "f"); }) == tensordict_errc::file);
    CHECK(refused([&] { weft::memmap(large, in / "m"); }) == tensordict_errc::file);
  }
  CHECK(weft::from_consolidated(in / "f").tensor("x").equal(at::ones({4})));
}

TEST_CASE("tensordict memmap: tensors are the files") {
  const folder in;
  tensordict td = weft::memmap_like(
      tensordict({{"obs", at::rand({3})}, {"next", {{"r", at::rand({1})}}}}).expand({100}),
      in / "m");
  CHECK(td.is_locked());
  CHECK(refused([&] { static_cast<void>(weft::memmap_like(td, in / "m")); }, "meta.json") ==
        tensordict_errc::file);  // not by zeros
  CHECK(td.tensor("obs").eq(0).all().item<bool>());
  td.index_put_(
      {Slice(10, 20)},
      tensordict({{"obs", at::ones({10, 3})}, {"next", {{"r", at::full({10, 1}, 2.F)}}}}, {10}));
  tensordict other = weft::load_memmap(in / "m");
  CHECK(other.index({15}).tensor("obs").equal(at::ones({3})));
  other.tensor({"next", "r"}).fill_(5);
  CHECK(td.tensor({"next", "r"}).eq(5).all().item<bool>());
  weft::flush_memmap(td);

  tensordict copy = weft::load_memmap(in / "m", weft::memmap_mode::copied);
  copy.tensor("obs").fill_(9);
  CHECK(td.tensor("obs").lt(9).all().item<bool>());
  CHECK(refused([&] { weft::make_memmap(copy, "x", {100}, at::kFloat); }) == tensordict_errc::kind);

  // Entries that come later.
  weft::make_memmap(td, "done", {100}, at::kBool).tensor("done").fill_(true);
  weft::make_memmap(td, {"next", "obs"}, {100, 3}, at::kHalf);
  CHECK(td.is_locked());
  CHECK_FALSE(other.contains("done"));
  weft::refresh_memmap(other);
  CHECK(other.tensor("done").all().item<bool>());
  CHECK(other.tensor({"next", "obs"}).sizes() == at::IntArrayRef{100, 3});
  CHECK(refused([&] { weft::make_memmap(td, "done", {100}, at::kBool); }) ==
        tensordict_errc::key_exists);
  CHECK(refused([&] { weft::make_memmap(td, "bad", {99}, at::kBool); }) == tensordict_errc::shape);
  weft::make_memmap(other, "late", {100}, at::kLong);
  CHECK(refused([&] { weft::make_memmap(td, "late", {100}, at::kLong); }, "refresh") ==
        tensordict_errc::key_exists);
  weft::refresh_memmap(td);
  CHECK(td.contains("late"));
  td.unlock_();
  CHECK(refused([&] { weft::refresh_memmap(td); }) == tensordict_errc::kind);
  CHECK(refused([&] { weft::refresh_memmap(td); }) == tensordict_errc::kind);
}

TEST_CASE("tensordict memmap: links, missing and short files, and other versions are refused") {
  const folder in;
  const auto fresh = [&] {
    fs::remove_all(in / "m");
    static_cast<void>(weft::memmap(
        tensordict({{"x", at::ones({4})}, {"n", {{"y", at::ones({4})}}}}, {4}), in / "m"));
  };
  const auto load = [&] { static_cast<void>(weft::load_memmap(in / "m")); };
  fresh();
  fs::rename(in / "m" / "x.memmap", in / "x");
  CHECK(refused(load, "x.memmap") == tensordict_errc::file);
  fs::create_symlink(in / "x", in / "m" / "x.memmap");
  CHECK(refused(load, "x.memmap") == tensordict_errc::file);
  fresh();
  fs::resize_file(in / "m" / "x.memmap", 15);
  CHECK(refused(load, "15 bytes") == tensordict_errc::format);
  CHECK(fs::file_size(in / "m" / "x.memmap") == 15);
  fresh();
  fs::rename(in / "m" / "n", in / "n");
  CHECK(refused(load, "/n") == tensordict_errc::file);
  fs::create_directory_symlink(in / "n", in / "m" / "n");
  CHECK(refused(load, "/n") == tensordict_errc::file);
  CHECK(refused([&] { weft::memmap(tensordict({{"n", {{"y", at::ones({1})}}}}), in / "m"); },
                "/n") == tensordict_errc::file);
  fresh();
  fs::remove(in / "m" / "x.memmap");
  REQUIRE(::mkfifo((in / "m" / "x.memmap").c_str(), 0600) == 0);
  CHECK(refused(load, "x.memmap") == tensordict_errc::format);
  fresh();
  auto meta = nlohmann::ordered_json::parse(read_all(in / "m" / "meta.json"));
  const auto with = [&](const char* path, const nlohmann::ordered_json& value) {
    auto other = meta;
    other[nlohmann::ordered_json::json_pointer(path)] = value;
    write_all(in / "m" / "meta.json", other.dump());
  };
  for (const auto& [path, value] : std::vector<std::pair<const char*, nlohmann::ordered_json>>{
           {"/_format_version", 2},
           {"/x/shape", {-4}},
           {"/x/shape", {std::int64_t{1} << 62, 16}},
           {"/x/shape", "4"},
           {"/x/shape", {5}},
           {"/x/dtype", "torch.float31"},
           {"/x/dtype", 7},
           {"/x/is_nested", true},
           {"/x/is_nested", "no"},
           {"/shape", {5}},
           {"/shape", nullptr},
           {"/_names", {"a", "b"}},
           {"/_names", {7}},
           {"/x", {{"type", "TensorDict"}}}}) {
    with(path, value);
    const auto code = refused(load, "m");
    CHECK((code == tensordict_errc::format || code == tensordict_errc::file));
  }
  write_all(in / "m" / "meta.json", "{\"_type\":\"<class 'x.NonTensorData'>\",\"d\":1}");
  CHECK(refused(load, "pickled") == tensordict_errc::format);
}

/// Changes some bytes, cuts, doubles.
std::string changed(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t i = below(4) + 1; i > 0 && !text.empty(); --i) {
    const std::size_t at = below(text.size());
    switch (below(6)) {
    case 0:
      text.resize(at);
      break;
    case 1:
      text.insert(at, text.substr(below(text.size()), below(64)));
      break;
    case 2:
      text.erase(at, below(64));
      break;
    case 3:
      text[at] = "0123456789[]{},:\"-"[below(18)];
      break;
    default:
      text[at] = static_cast<char>(random());
    }
  }
  return text;
}

TEST_CASE("tensordict files: changed bytes are refused, or another whole tensordict") {
  const folder in;
  const tensordict td = sample(false);
  weft::to_consolidated(with_ragged(td.clone()), in / "a.td");
  weft::to_safetensors(sample(true), in / "a.safetensors");
  static_cast<void>(weft::memmap(td, in / "m"));
  const std::string td_bytes = read_all(in / "a.td");
  const std::string safe_bytes = read_all(in / "a.safetensors");
  const std::string meta_bytes = read_all(in / "m" / "meta.json");
  const std::size_t head = std::min<std::size_t>(safe_bytes.size(), 2000);
  std::mt19937 random(7);
  int whole = 0;
  int wrong = 0;
  const auto use = [&](const auto& read) {
    try {
      const tensordict got = read();
      for (const auto& [key, t] : got.leaves()) {
        if (t.numel() > 0) static_cast<void>(t.to(at::kByte).max());
      }
      static_cast<void>(got.to_string());
      static_cast<void>(got.clone());
      ++whole;
    } catch (const tensordict_error&) {
      ++wrong;
    }
  };
  for (int i = 0; i < 1500; ++i) {  // bounded: a number
    // Most of what matters is in the JSON at the end, and at the beginning.
    const std::size_t json = td_bytes.size() - std::min<std::size_t>(td_bytes.size(), 3000);
    write_all(in / "b.td", td_bytes.substr(0, json) + changed(td_bytes.substr(json), random));
    use([&] { return weft::from_consolidated(in / "b.td"); });
    write_all(in / "b.safetensors",
              changed(safe_bytes.substr(0, head), random) + safe_bytes.substr(head));
    use([&] { return weft::from_safetensors(in / "b.safetensors"); });
    write_all(in / "m" / "meta.json", changed(meta_bytes, random));
    use([&] { return weft::load_memmap(in / "m"); });
  }
  CHECK(whole > 100);
  CHECK(wrong > 1000);
}

TEST_CASE("tensordict memmap: what is half written opens nowhere, and what stood there before is "
          "no part") {
  const folder in;
  const tensordict old({{"a", at::ones({4})}, {"n", {{"b", at::ones({4})}}}}, {4});
  static_cast<void>(weft::memmap(old, in / "m"));
  // What is refused has changed nothing.
  const tensordict bad({{"a", at::zeros({4}, at::kInt)}, {"s", at::ones({4, 4}).to_sparse()}});
  CHECK(refused([&] { weft::memmap(bad, in / "m"); }) == tensordict_errc::kind);
  CHECK(weft::load_memmap(in / "m").tensor("a").equal(at::ones({4})));
  // The second leaf fails in the middle.
  const tensordict large({{"a", at::zeros({4}, at::kInt)}, {"s", at::ones({1 << 20})}});
  {
    const file_size_limit tight(1 << 16);
    CHECK(refused([&] { weft::memmap(large, in / "m"); }) == tensordict_errc::file);
  }
  CHECK(refused([&] { static_cast<void>(weft::load_memmap(in / "m")); }) == tensordict_errc::file);
  // A tensorclass of Python stood there.
  static_cast<void>(weft::memmap(old, in / "c" / "_tensordict"));
  static_cast<void>(weft::memmap(old, in / "c"));
  CHECK(weft::load_memmap(in / "c").size() == 2);
  // A longer stack stood there: it stays as it was.
  const auto stack_of = [](int n, float v) {
    std::vector<weft::tensordict_value> parts;
    for (int i = 0; i < n; ++i) parts.emplace_back(tensordict({{"x", at::full({2}, v)}}));
    return lazy_stack(std::move(parts));
  };
  static_cast<void>(weft::memmap(stack_of(3, 1), in / "lz"));
  CHECK(refused([&] { static_cast<void>(weft::memmap(stack_of(2, 2), in / "lz")); }, "longer") ==
        tensordict_errc::format);
  CHECK(weft::load_memmap<lazy_stack>(in / "lz").tensor("x").eq(1).all().item<bool>());
  // Data of more dimensions than what has them, and a key like the format's.
  const lazy_stack words({lazy_stack({non_tensor("a"), non_tensor("b")}),
                          lazy_stack({non_tensor("c"), non_tensor(nlohmann::ordered_json{1, 2})})});
  const tensordict more({{"words", words}, {"_is_non_tensor", at::ones({2})}}, {2});
  static_cast<void>(weft::memmap(more, in / "w"));
  CHECK(weft::load_memmap(in / "w").stack("words").batch_size() == at::IntArrayRef{2, 2});
  CHECK(weft::load_memmap(in / "w").contains("_is_non_tensor"));
}

TEST_CASE("tensordict memmap: a nested one that others have added is mapped, too") {
  const folder in;
  tensordict td = weft::memmap(tensordict({{"a", at::ones({4})}}, {4}), in / "m");
  static_cast<void>(weft::memmap(
      tensordict({{"a", at::ones({4})}, {"n", {{"b", at::ones({4})}}}}, {4}), in / "m"));
  weft::refresh_memmap(td);
  weft::make_memmap(td, {"n", "z"}, {4}, at::kFloat);
  CHECK(td.tensor({"n", "z"}).sizes() == at::IntArrayRef{4});
  weft::flush_memmap(td.dict("n"));
  td.unlock_();
  CHECK_FALSE(td.dict("n").is_locked());
  td = weft::load_memmap(in / "m");
  fs::remove_all(in / "m");
  CHECK(refused([&] { weft::flush_memmap(td); }) == tensordict_errc::file);
}

TEST_CASE("tensordict files: so deep as can be read is written, and not deeper") {
  const folder in;
  for (const int levels : {99, 120}) {
    tensordict td({{"x", at::ones({1})}});
    for (int i = 0; i < levels; ++i) td = tensordict({{"a", td}});
    const bool good = levels <= 100;
    const auto all = [&](const auto& write, const auto& read) {
      if (good) {
        write();
        CHECK(read().leaves().size() == 1);
      } else {
        CHECK(refused(write) == tensordict_errc::format);
      }
    };
    all([&] { weft::to_consolidated(td, in / "f"); },
        [&] { return weft::from_consolidated(in / "f"); });
    all([&] { weft::to_safetensors(td, in / "s"); },
        [&] { return weft::from_safetensors(in / "s"); });
    all([&] { static_cast<void>(weft::memmap(td, in / std::to_string(levels))); },
        [&] { return weft::load_memmap(in / "99"); });
  }
}

TEST_CASE("tensordict files: one that claims much costs no more than its size") {
  const folder in;
  const auto tail = [](const std::string& json) {
    std::string out = json;
    for (std::uint64_t n = json.size(), i = 0; i < 8; ++i, n >>= 8) out += static_cast<char>(n);
    return out;
  };
  const std::string head = R"({"cls":"TensorDict","non_tensors":{},"leaves":{)";
  const std::string end = R"(},"cls_metadata":{"batch_size":[]}})";
  // 1 TB of a file with 8 bytes; a length behind the file; a tree without an end.
  write_all(in / "f",
            "12345678" +
                tail(head + R"("x":["torch.uint8",[1099511627776],0,1099511627776,0])" + end));
  CHECK(refused([&] { static_cast<void>(weft::from_consolidated(in / "f")); }, "'x'") ==
        tensordict_errc::format);
  write_all(in / "f", "{}" + std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  CHECK(refused([&] { static_cast<void>(weft::from_consolidated(in / "f")); }) ==
        tensordict_errc::format);
  std::string deep = "{}";
  for (int i = 0; i < 150; ++i) {  // bounded: a number
    deep =
        R"({"cls":"TensorDict","non_tensors":{},"leaves":{},"cls_metadata":{"batch_size":[]},"a":)" +
        deep + "}";
  }
  write_all(in / "f", tail(deep));
  CHECK(refused([&] { static_cast<void>(weft::from_consolidated(in / "f")); }) ==
        tensordict_errc::format);
  // So many keys in one object that a search for each would take minutes.
  std::string many = head;
  for (int i = 0; i < 200'000; ++i) {  // bounded: a number
    many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":["torch.uint8",[0],0,0,0])";
  }
  write_all(in / "f", tail(many + end));
  CHECK(weft::from_consolidated(in / "f").size() == 200'000);
  std::string safe = "{}";
  safe.resize(8, ' ');
  write_all(in / "f", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + safe);
  CHECK(refused([&] { static_cast<void>(weft::from_safetensors(in / "f")); }) ==
        tensordict_errc::format);
}

TEST_CASE("tensordict files: small ones that would make much") {
  const folder in;
  const auto safe = [&](const std::string& header, const std::string& data) {
    std::string out;
    for (std::uint64_t n = header.size(), i = 0; i < 8; ++i, n >>= 8) out += static_cast<char>(n);
    write_all(in / "s", out + header + data);
    return refused([&] { static_cast<void>(weft::from_safetensors(in / "s")); });
  };
  CHECK(
      safe(
          R"({"__metadata__":{"tensordict":"{\"version\":1,\"root\":{\"batch_size\":[1099511627776],)"
          R"(\"keys\":{},\"stack_dim\":0}}"}})",
          "") == tensordict_errc::format);
  CHECK(safe(R"({"x":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x01\x02") ==
        tensordict_errc::format);
  CHECK(safe("{\"" + std::string(60'000, '.') +
                 R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
             "x") == tensordict_errc::format);
  // Copies of what overlaps.
  std::string json = R"({"cls":"TensorDict","non_tensors":{},"leaves":{)";
  for (int i = 0; i < 100; ++i) {
    json += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":["torch.int16",[49999],1,99999,0])";
  }
  json += R"(},"cls_metadata":{"batch_size":[]}})";
  std::string file = std::string(100'000, 'x') + json;
  for (std::uint64_t n = json.size(), i = 0; i < 8; ++i, n >>= 8) file += static_cast<char>(n);
  write_all(in / "f", file);
  CHECK(refused([&] { static_cast<void>(weft::from_consolidated(in / "f")); }, "overlap") ==
        tensordict_errc::format);
}

}  // namespace tensordict_files
