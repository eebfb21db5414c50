// SPDX-License-Identifier: BSL-1.0
// Sparse tensors that libtorch calls coalesced, though they are not: their values arrive, and what
// arrives claims no more than is true. And what an exception of libtorch says.
#include "packed.hpp"
#include "sent_over.hpp"
#include <weft/wire/detail/tensor_error.hpp>
#include <weft/wire/detail/tensor_table.hpp>
#include <weft/wire/tensor.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <string>
#include <vector>

namespace tensor_sparse {
namespace {

using weft_test::pack;
using weft_test::unpack;

bool truly_coalesced(const at::Tensor& t) {
  const at::Tensor again =
      at::sparse_coo_tensor(t._indices(), t._values(), t.sizes(), at::TensorOptions()).coalesce();
  return at::equal(again._indices(), t._indices());
}

at::Tensor coalesced() {
  const at::Tensor indices = at::tensor({0, 0, 1, 2, 1, 3, 0, 2, 1, 0, 2, 1}, at::kLong);
  return at::sparse_coo_tensor(indices.reshape({3, 4}), at::arange(1, 5, at::kFloat), {3, 4, 3},
                               at::TensorOptions())
      .coalesce();
}

TEST_CASE("tensor: sparse ones arrive with true claims, whatever libtorch says of them") {
  const at::Tensor s = coalesced();
  const at::Tensor swapped = s.permute({0, 2, 1});
  REQUIRE(swapped.is_coalesced());  // not true: else this tests nothing
  REQUIRE_FALSE(truly_coalesced(swapped));
  const at::Tensor twice =
      at::_sparse_coo_tensor_unsafe(at::zeros({1, 2}, at::kLong), at::ones({2}), {3},
                                    at::TensorOptions().layout(at::kSparse), true);
  const at::Tensor no_dims =
      at::_sparse_coo_tensor_unsafe(at::zeros({0, 2}, at::kLong), at::ones({2}), {},
                                    at::TensorOptions().layout(at::kSparse), true);
  const std::vector<at::Tensor> all = {s,
                                       swapped,
                                       s.permute({2, 1, 0}),
                                       s.transpose(0, 2),
                                       at::rand({3, 4, 3}).sparse_mask(s),
                                       at::rand({3, 3, 4}).sparse_mask(swapped),
                                       twice,
                                       no_dims,
                                       s.permute({1, 0, 2}).set_requires_grad(true)};
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    // Where the claim is false libtorch's to_dense has one value of two, or their sum, by chance.
    const at::Tensor values = all[i].detach();
    const at::Tensor whole = at::_sparse_coo_tensor_unsafe(values._indices(), values._values(),
                                                           values.sizes(), values.options(), false)
                                 .to_dense();
    auto copy = weft_test::copy_of(pack(all[i]));
    REQUIRE(copy.has_value());
    for (const auto& [there] :
         {unpack<at::Tensor>(std::move(*copy)), unpack<at::Tensor>(pack(all[i]))}) {
      CHECK(at::equal(there.detach().to_dense(), whole));
      CHECK(there.is_coalesced() == (all[i].is_coalesced() && truly_coalesced(all[i])));
      CHECK(there.requires_grad() == all[i].requires_grad());
    }
  }
}

TEST_CASE("tensor: a long error of libtorch is told without its list of kernels") {
  std::string whole, words;
  try {
    static_cast<void>(at::linalg_qr(coalesced()));
  } catch (const c10::Error& e) {
    whole = e.what_without_backtrace();
    words = weft::detail::words_of(e);
  }
  CAPTURE(whole);
  REQUIRE(whole.size() > 2000);
  CHECK(words.size() < 2000);
  CHECK(words.starts_with("Could not run 'aten::"));
  CHECK(whole.starts_with(words));
  try {
    static_cast<void>(at::ones({2}).add(at::ones({3})));
  } catch (const c10::Error& e) {
    CHECK(weft::detail::words_of(e) == e.what_without_backtrace());
  }
}

}  // namespace
}  // namespace tensor_sparse
