// SPDX-License-Identifier: BSL-1.0
#include "packed.hpp"
#include "sent_over.hpp"
#include <weft/wire/detail/tensor_table.hpp>
#include <weft/wire/detail/tensor_unpack.hpp>
#include <weft/wire/tensor.hpp>
#include <weft/wire/tensor_copies.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <core/error_of.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>

namespace {

using weft::testing::error_of;
using weft_test::pack;
using weft_test::unpack;

// Through bytes, to another process.
template <class... Ts>
std::tuple<Ts...> travel(const Ts&... values) {
  auto copy = weft_test::copy_of(pack(values...));
  REQUIRE(copy.has_value());
  return unpack<Ts...>(std::move(*copy));
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().resolve_conj().resolve_neg().contiguous();
  const at::Tensor y = b.detach().contiguous();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

at::Tensor arrives_equal(const at::Tensor& t) {
  const at::Tensor here = std::get<0>(travel(t));
  const at::Tensor near = std::get<0>(unpack<at::Tensor>(pack(t)));
  CHECK(same_bytes(t, here));
  CHECK(same_bytes(t, near));
  CHECK(here.requires_grad() == t.requires_grad());
  return here;
}

std::uint64_t blob_bytes(const weft::frame& f) { return f.wire_size() - f.head.size(); }

}  // namespace

TEST_CASE("tensor: every dense dtype arrives bit for bit") {
  const at::Tensor source = at::arange(24).reshape({2, 3, 4});
  for (const auto type : {at::kByte,
                          at::kChar,
                          at::kShort,
                          at::kInt,
                          at::kLong,
                          at::kHalf,
                          at::kFloat,
                          at::kDouble,
                          at::kComplexHalf,
                          at::kComplexFloat,
                          at::kComplexDouble,
                          at::kBool,
                          at::kBFloat16,
                          at::kFloat8_e5m2,
                          at::kFloat8_e4m3fn,
                          at::kFloat8_e5m2fnuz,
                          at::kFloat8_e4m3fnuz,
                          at::kUInt16,
                          at::kUInt32,
                          at::kUInt64}) {
    CAPTURE(c10::toString(type));
    const at::Tensor t = source.to(type);
    CHECK(arrives_equal(t).strides() == t.strides());
    CHECK(weft::item_size(static_cast<std::uint8_t>(type)) == c10::elementSize(type));
  }
}

TEST_CASE("tensor: the dtype table agrees with libtorch") {
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<c10::ScalarType>(i);
    const auto number = static_cast<std::uint8_t>(i);
    if (weft::item_size(number) == 0) continue;
    CAPTURE(c10::toString(type));
    CHECK(weft::item_size(number) == c10::elementSize(type));
    CHECK(weft::is_differentiable(number) ==
          (c10::isFloatingType(type) || c10::isComplexType(type)));
  }
}

TEST_CASE("tensor: 0-dim, empty and undefined") {
  CHECK(arrives_equal(at::scalar_tensor(3.5)).dim() == 0);
  const weft::frame empty = pack(at::empty({3, 0, 2}));
  CHECK(empty.blobs.empty());
  CHECK(arrives_equal(at::empty({3, 0, 2})).sizes() == at::IntArrayRef({3, 0, 2}));
  CHECK_FALSE(std::get<0>(travel(at::Tensor())).defined());
  const auto [a, b, c] = travel(at::Tensor(), at::ones({2}), at::Tensor());
  CHECK_FALSE(a.defined());
  CHECK(same_bytes(b, at::ones({2})));
  CHECK_FALSE(c.defined());
}

TEST_CASE("tensor: a transpose keeps its strides, nothing is copied") {
  const at::Tensor t = at::rand({4, 6}).t();
  const weft::frame f = pack(t);
  REQUIRE(f.blobs.size() == 1);
  CHECK(static_cast<void*>(f.blobs[0].data()) == t.data_ptr());
  CHECK(blob_bytes(f) == t.nbytes());
  CHECK(arrives_equal(t).strides() == t.strides());
  const at::Tensor channels_last =
      at::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  CHECK(arrives_equal(channels_last).strides() == channels_last.strides());
}

TEST_CASE("tensor: an expanded tensor's bytes are not multiplied") {
  const at::Tensor t = at::rand({1, 5}).expand({1000, 5});
  CHECK(blob_bytes(pack(t)) == 5 * sizeof(float));
  CHECK(arrives_equal(t).stride(0) == 0);
  const at::Tensor gaps = at::rand({8, 1, 8}).slice(2, 0, 8, 2).expand({8, 50, 4});
  CHECK(blob_bytes(pack(gaps)) == 8 * 4 * sizeof(float));
  CHECK(arrives_equal(gaps).stride(1) == 0);
}

TEST_CASE("tensor: of a big storage only the view's own bytes travel") {
  const at::Tensor big = at::rand({1000, 1000});
  CHECK(blob_bytes(pack(big[7])) == 1000 * sizeof(float));
  CHECK(blob_bytes(pack(big.slice(1, 3, 5))) == 2000 * sizeof(float));
  arrives_equal(big[7]);
  arrives_equal(big.slice(1, 3, 5));
  arrives_equal(big.slice(0, 0, 1000, 10).slice(1, 0, 1000, 7));
  arrives_equal(big.diagonal());
}

TEST_CASE("tensor: overlapping windows travel as one range") {
  const at::Tensor t = at::arange(100, at::kFloat).unfold(0, 10, 1);
  CHECK(blob_bytes(pack(t)) == 100 * sizeof(float));
  CHECK(arrives_equal(t).strides() == t.strides());
}

TEST_CASE("tensor: tensors that share storage arrive sharing it") {
  const at::Tensor base = at::zeros({4, 4});
  const weft::frame f = pack(base, base[1], base.t(), base.slice(1, 0, 2));
  CHECK(f.blobs.size() == 1);
  auto [a, row, transposed, columns] = travel<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
      base, base[1], base.t(), base.slice(1, 0, 2));
  a.fill_(3);
  CHECK(row.sum().item<float>() == 12);
  CHECK(transposed.sum().item<float>() == 48);
  CHECK(columns.sum().item<float>() == 24);
  // Parts that overlap only in part, the later one first.
  const at::Tensor line = at::arange(10);
  auto [tail, head] = travel<at::Tensor, at::Tensor>(line.slice(0, 4), line.slice(0, 0, 6));
  tail.fill_(-1);
  CHECK(head[5].item<std::int64_t>() == -1);
  CHECK(head[3].item<std::int64_t>() == 3);
}

TEST_CASE("tensor: one storage under several dtypes stays aligned") {
  const at::Tensor raw = at::arange(64, at::kByte);
  const at::Tensor odd = raw.slice(0, 3, 20);
  const at::Tensor words = raw.slice(0, 8, 24).view(at::kInt);
  const auto [a, b] = travel(odd, words);
  CHECK(same_bytes(a, odd));
  CHECK(same_bytes(b, words));
  CHECK(reinterpret_cast<std::uintptr_t>(b.const_data_ptr()) % alignof(int) == 0);
}

TEST_CASE("tensor: the same tensor twice arrives as one") {
  const at::Tensor t = at::rand({3});
  const auto [a, b] = travel(t, t);
  CHECK(a.is_same(b));
  std::vector<at::Tensor> many(100, t);
  many.push_back(at::ones({2}));
  const auto back = std::get<0>(travel(many));
  REQUIRE(back.size() == 101);
  CHECK(back[0].is_same(back[99]));
  CHECK_FALSE(back[0].is_same(back[100]));
}

TEST_CASE("tensor: many tensors in one message") {
  std::map<std::string, std::vector<at::Tensor>> value;
  for (int i = 0; i < 1000; ++i) value["k" + std::to_string(i % 7)].push_back(at::full({2}, i));
  const auto back = std::get<0>(travel(value));
  CHECK(back.at("k3")[5].sum().item<float>() == 2 * (3 + 5 * 7));
}

TEST_CASE("tensor: in one process, too, the receiver has memory of its own") {
  const at::Tensor t = at::rand({4, 3}).t();
  const at::Tensor slice = t[1];
  const at::Tensor before = t.clone();
  auto [a, b] = unpack<at::Tensor, at::Tensor>(pack(t, slice));
  CHECK(same_bytes(a, t));
  CHECK(a.is_alias_of(b));  // as they were
  const auto version = t._version();
  a.add_(1);
  CHECK(t._version() == version);
  CHECK(at::equal(t, before));
  t.zero_();
  CHECK(at::equal(a, before + 1));
}

TEST_CASE("tensor: in one process what nobody else has any more is not copied") {
  const auto sent = [](at::Tensor t) {
    const void* const memory = t.data_ptr();
    auto packed = pack(t);
    t.reset();
    return std::pair(std::get<0>(unpack<at::Tensor>(std::move(packed))), memory);
  };
  const auto [moved, there] = sent(at::rand({100}));
  CHECK(moved.data_ptr() == there);
  const at::Tensor kept = at::rand({100});
  CHECK(sent(kept).first.data_ptr() != kept.data_ptr());
  CHECK(sent(kept.slice(0, 3, 7)).first.data_ptr() != kept[3].data_ptr());
  // Memory that a tensor does not own is somebody's.
  std::vector<float> somebodys(100, 1.0F);
  CHECK(sent(at::from_blob(somebodys.data(), {100})).first.data_ptr() != somebodys.data());
}

TEST_CASE("tensor: what is copied has its own memory at any depth, and its history") {
  const at::Tensor w = at::rand({3}).set_requires_grad(true);
  const std::map<std::string, std::vector<std::optional<at::Tensor>>> all{
      {"a", {w, std::nullopt, at::Tensor()}}, {"b", {w * 2}}};
  const auto copy = weft::copied(all);
  REQUIRE(copy.at("a").size() == 3);
  CHECK(at::equal(*copy.at("a")[0], w));
  CHECK_FALSE(copy.at("a")[0]->is_alias_of(w));
  CHECK_FALSE(copy.at("a")[1].has_value());
  CHECK_FALSE(copy.at("a")[2]->defined());
  copy.at("b")[0]->sum().backward();
  CHECK(at::equal(w.grad(), at::full({3}, 2.0F)));
}

TEST_CASE("tensor: storage lives as long as the receiver's tensor") {
  at::Tensor kept;
  {
    at::Tensor t = at::full({1000}, 7);
    kept = std::get<0>(travel(t));
  }
  CHECK(kept.sum().item<std::int64_t>() == 7000);
  kept.resize_({2000});
  CHECK(kept[999].item<std::int64_t>() == 7);
}

TEST_CASE("tensor: dtypes of the wire are those of this libtorch, of the same size") {
  int known = 0;
  for (int dtype = 0; dtype < 256; ++dtype) {
    const auto number = static_cast<std::uint8_t>(dtype);
    if (weft::item_size(number) == 0) continue;
    const auto type = static_cast<c10::ScalarType>(dtype);
    const bool here = dtype < static_cast<int>(c10::ScalarType::Undefined);
    CHECK(weft::detail::known_here(number) == here);
    if (here) CHECK(weft::item_size(number) == c10::elementSize(type));
    known += here ? 1 : 0;
  }
  CHECK(known >= 20);
  CHECK_FALSE(weft::detail::known_here(static_cast<std::uint8_t>(c10::ScalarType::Undefined)));
  CHECK_FALSE(weft::detail::known_here(255));
}

TEST_CASE("tensor: requires_grad arrives, data is detached") {
  const at::Tensor leaf = at::rand({3}).requires_grad_(true);
  const at::Tensor inner = leaf * 2;
  CHECK(arrives_equal(leaf).is_leaf());
  const at::Tensor back = arrives_equal(inner);
  CHECK(back.is_leaf());
  CHECK(back.requires_grad());
}

TEST_CASE("tensor: a service sees which require grad on both sides, in one order") {
  const at::Tensor plain = at::rand({1});
  const at::Tensor first = at::rand({2}).requires_grad_(true);
  const at::Tensor second = at::rand({3}).requires_grad_(true) * 2;
  weft::message m;
  weft::encode_all(m.payload(), second, plain, first, second);
  const auto* table = m.record().find<weft::tensor_table>();
  REQUIRE(table != nullptr);
  REQUIRE(table->tensors().size() == 3);
  CHECK(table->tensors()[0].is_same(second));
  auto copy = weft_test::copy_of(std::move(m).finish({}));
  REQUIRE(copy.has_value());
  weft::incoming_message in(std::move(*copy));
  REQUIRE(in.check());
  std::vector<std::int64_t> seen;
  std::vector<bool> were_computed;
  in.record().get<weft::tensor_table>().on_received = [&](std::span<at::Tensor> tensors,
                                                          const std::vector<bool>& computed) {
    were_computed = computed;
    for (at::Tensor& t : tensors) {
      CHECK_FALSE(t.requires_grad());
      seen.push_back(t.numel());
      t = t + 1;
    }
  };
  weft::reader r = in.payload();
  const auto [a, b, c, d] = weft::decode_all<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(r);
  CHECK(seen == std::vector<std::int64_t>{3, 2});
  CHECK(were_computed == std::vector<bool>{true, false});
  CHECK(at::allclose(a, second.detach() + 1));
  CHECK(same_bytes(b, plain));
  CHECK(at::allclose(c, first.detach() + 1));
  CHECK(a.is_same(d));
}

TEST_CASE("tensor: conjugated and negated views arrive resolved") {
  const at::Tensor z = at::complex(at::rand({3}), at::rand({3}));
  arrives_equal(z.conj());
  arrives_equal(at::imag(z.conj()));
}

TEST_CASE("tensor: sparse COO with indices, values and the coalesced flag") {
  const at::Tensor indices = at::tensor({0, 2, 1, 0}, at::kLong).reshape({2, 2});
  const at::Tensor sparse =
      at::sparse_coo_tensor(indices, at::rand({2, 4}), {3, 2, 4}, at::TensorOptions());
  for (const at::Tensor& t : {sparse, sparse.coalesce()}) {
    const at::Tensor back = std::get<0>(travel(t));
    CHECK(back.is_sparse());
    CHECK(back.is_coalesced() == t.is_coalesced());
    CHECK(back.sparse_dim() == 2);
    CHECK(same_bytes(back.to_dense(), t.to_dense()));
  }
  const at::Tensor none = at::sparse_coo_tensor({3, 2}, at::TensorOptions().dtype(at::kFloat));
  CHECK(same_bytes(std::get<0>(travel(none)).to_dense(), none.to_dense()));
  const at::Tensor grad = sparse.detach().clone().requires_grad_(true);
  CHECK(std::get<0>(travel(grad)).requires_grad());
  const auto [dense, mixed] = travel(at::ones({2}), sparse);
  CHECK(same_bytes(dense, at::ones({2})));
  CHECK(same_bytes(mixed.to_dense(), sparse.to_dense()));
}

TEST_CASE("tensor: in a program without the engine the error names the header") {
  const auto made = std::exchange(weft::detail::make_tensor_table, nullptr);
  const weft::error e = error_of([] { (void)pack(at::ones({2})); });
  weft::detail::make_tensor_table = made;
  CHECK(e == weft::errc::not_encodable);
  CHECK(e.message().find("weft/run.hpp") != std::string::npos);
  CHECK_FALSE(error_of([] { (void)pack(at::ones({2})); }));
}

TEST_CASE("tensor: what cannot travel is refused by name, before anything is sent") {
  auto refused = [](const at::Tensor& t) {
    const weft::error e = error_of([&] { (void)pack(t); });
    CHECK(e == weft::errc::not_encodable);
    CHECK(e.ran() == weft::call_progress::not_sent);
    return e.detail().text;
  };
  const at::Tensor m = at::eye(3);
  CHECK(refused(at::quantize_per_tensor(m, 0.1, 0, at::kQInt8)).find("a quantised tensor") == 0);
  CHECK(refused(m.to_sparse_csr()).find("a compressed sparse tensor") == 0);
  CHECK(refused(at::empty({2}, at::TensorOptions().device(at::kMeta))).find("a meta tensor") == 0);
  CHECK(refused(at::_nested_tensor_from_tensor_list({m, m})).find("a nested tensor") == 0);
  CHECK(refused(at::_efficientzerotensor({2})).find("a tensor of implicit zeros") == 0);
  CHECK(
      refused(at::empty({2}, at::kFloat)
                  .set_(c10::Storage(c10::Storage::use_byte_size_t(), 8,
                                     c10::DataPtr(nullptr, c10::Device(at::kCPU)), nullptr, false)))
          .find("a tensor whose memory is not there") == 0);
  CHECK(refused(at::Tensor(m.as_strided(std::vector<std::int64_t>(65, 1),
                                        std::vector<std::int64_t>(65, 1))))
            .find("a tensor of more than 64 dimensions") == 0);
}

// ------------------------------------------------------------------ a hostile sender

namespace {

std::vector<at::Tensor> specimens() {
  const at::Tensor base = at::rand({4, 6});
  const at::Tensor indices = at::tensor({0, 2, 1, 0}, at::kLong).reshape({2, 2});
  return {
      at::Tensor(),
      at::scalar_tensor(1.5),
      base,
      base.t(),
      base[2],
      at::rand({1, 3}).expand({5, 3}),
      at::empty({0, 3}),
      at::ones({3}, at::kBool),
      at::sparse_coo_tensor(indices, at::rand({2, 4}), {3, 2, 4}, at::TensorOptions()).coalesce(),
      at::rand({2}).requires_grad_(true)};
}

// Decodes what may be nonsense: a typed error, or tensors whose every element can be read.
void survives(weft::frame f) {
  try {
    const auto all = std::get<0>(unpack<std::vector<at::Tensor>>(std::move(f)));
    for (const at::Tensor& t : all) {
      if (!t.defined()) continue;
      if (t.is_sparse()) {
        if (t.numel() < 1'000'000) (void)t.to_dense().sum();
      } else if (t.numel() < 1'000'000) {
        (void)t.detach().clone();
      }
    }
  } catch (const weft::rpc_error& e) {
    const bool typed = e.error() == weft::errc::bad_arguments ||
                       e.error() == weft::errc::protocol_error ||
                       e.error() == weft::errc::message_too_large;
    CHECK(typed);
  }
}

}  // namespace

TEST_CASE("tensor: each bit of payload and table flipped is an error or what it now says") {
  const weft::frame good = pack(specimens());
  for (std::size_t at = weft::header_size; at < good.head.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = weft_test::copy_of(good);
      REQUIRE(bad.has_value());
      bad->head.data()[at] ^= static_cast<std::byte>(1 << bit);
      survives(std::move(*bad));
    }
  }
}

TEST_CASE("tensor: each 8-byte field of the table set to an extreme") {
  const weft::frame good = pack(specimens());
  const std::size_t table = weft::header_size + good.header.payload_bytes;
  for (std::size_t at = table; at + 8 <= good.head.size(); at += 4) {
    for (const std::uint64_t value :
         {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{1} << 63,
          (std::uint64_t{1} << 63) - 1, std::uint64_t{1} << 48, (std::uint64_t{1} << 48) + 1,
          std::uint64_t{0xFFFFFFFF}, std::uint64_t{7}}) {
      auto bad = weft_test::copy_of(good);
      REQUIRE(bad.has_value());
      weft::detail::store(bad->head.data() + at, value);
      survives(std::move(*bad));
    }
  }
}

TEST_CASE("tensor: every truncation of the section is a typed error") {
  const weft::frame good = pack(specimens());
  weft::incoming_message whole(std::move(*weft_test::copy_of(good)));
  REQUIRE(whole.check());
  const auto section = *whole.section(weft::section_kind::tensors);
  REQUIRE(weft::check_tensors(section, whole.blobs()).empty());
  for (std::size_t n = 0; n < section.size(); ++n) {
    weft::message m;
    m.payload().raw(good.payload().data(), good.payload().size());
    m.section(weft::section_kind::tensors, section.first(n));
    for (const weft::blob& b : good.blobs) (void)m.add_blob(b);
    const weft::error e =
        error_of([&] { (void)unpack<std::vector<at::Tensor>>(std::move(m).finish({})); });
    CHECK(e == weft::errc::bad_arguments);
    CHECK(e.ran() == weft::call_progress::not_executed);
  }
}

TEST_CASE("tensor: a view with gaps that came without what covers it is not passed on") {
  const auto passed_on = [](weft::frame f) {
    weft::incoming_message in(std::move(f));
    REQUIRE(in.check());
    weft::message out;
    out.same_payload(in);
    weft::detail::torch_tensor_table::pass_on(in, out);
    return std::move(out).finish({});
  };
  const at::Tensor base = at::arange(16).view({4, 4});
  const weft::frame good = pack(base, base.slice(1, 0, 2));
  auto frame = weft_test::copy_of(good);
  REQUIRE(frame.has_value());
  const auto [whole, columns] = unpack<at::Tensor, at::Tensor>(passed_on(std::move(*frame)));
  CHECK(at::equal(whole, base));
  CHECK(at::equal(columns, base.slice(1, 0, 2)));

  // As if only the first row had come: to copy the view is to have memory for what is between.
  auto alone = weft_test::copy_of(good);
  REQUIRE(alone.has_value());
  const std::array<std::int64_t, 4> shape{4, 4, 4, 1};  // sizes, strides
  const auto bytes = std::as_bytes(std::span(shape));
  const std::span<std::byte> head(alone->head.data(), alone->head.size());
  const auto found = std::search(head.begin(), head.end(), bytes.begin(), bytes.end());
  REQUIRE(found != head.end());
  weft::detail::store(&*found, std::uint64_t{1});
  auto readable = weft_test::copy_of(*alone);
  REQUIRE(readable.has_value());
  CHECK(std::get<0>(unpack<at::Tensor, at::Tensor>(std::move(*readable))).size(0) == 1);
  const weft::error e = error_of([&] { static_cast<void>(passed_on(std::move(*alone))); });
  CHECK(e == weft::errc::bad_arguments);
  CHECK(e.message().find("a view with gaps") != std::string::npos);
}

TEST_CASE("tensor: bool elements other than 0 and 1 are refused") {
  auto f = weft_test::copy_of(pack(at::ones({100}, at::kBool)));
  REQUIRE(f.has_value());
  f->blobs[0].data()[37] = std::byte{2};
  const weft::error e = error_of([&] { (void)unpack<at::Tensor>(std::move(*f)); });
  CHECK(e == weft::errc::bad_arguments);
}

TEST_CASE("tensor: sparse indices are checked on arrival") {
  const at::Tensor indices = at::tensor({0, 1, 2}, at::kLong).reshape({1, 3});
  const at::Tensor t =
      at::sparse_coo_tensor(indices, at::rand({3}), {3}, at::TensorOptions()).coalesce();
  for (const std::int64_t wrong : {std::int64_t{3}, std::int64_t{-1}, std::int64_t{0},
                                   std::numeric_limits<std::int64_t>::max()}) {
    auto f = weft_test::copy_of(pack(t));
    REQUIRE(f.has_value());
    weft::detail::store(f->blobs[0].data() + 8, wrong);
    const weft::error e = error_of([&] { (void)unpack<at::Tensor>(std::move(*f)); });
    CHECK(e == weft::errc::bad_arguments);
  }
}
