// SPDX-License-Identifier: BSL-1.0
// Arithmetic, comparisons, reductions and masks of tensordicts, tensor by tensor.
//
//   weft::tensordict mean = (a + b) / 2;
//   bool equal = weft::all(a == b);
#pragma once

#include <weft/tensordict/tensordict.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft {

// Of two: the same keys and batch size, else `no_key` or `shape`; results keep the order and the
// names of the left one. Of a tensor: its sizes are broadcast to the batch size. libtorch decides
// about dtypes.

[[nodiscard]] tensordict operator+(const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict operator-(const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict operator*(const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict operator/(const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict operator==(const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict operator!=(const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict operator<(const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict operator<=(const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict operator>(const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict operator>=(const tensordict& a, const tensordict& b);

[[nodiscard]] tensordict operator+(const tensordict& a, const at::Tensor& b);
[[nodiscard]] tensordict operator-(const tensordict& a, const at::Tensor& b);
[[nodiscard]] tensordict operator*(const tensordict& a, const at::Tensor& b);
[[nodiscard]] tensordict operator/(const tensordict& a, const at::Tensor& b);

[[nodiscard]] tensordict operator+(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator-(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator*(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator/(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator==(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator!=(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator<(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator<=(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator>(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator>=(const tensordict& a, const at::Scalar& b);
[[nodiscard]] tensordict operator-(const tensordict& a);

/// Over one dimension of the batch size, which goes.
[[nodiscard]] tensordict sum(const tensordict& td, std::int64_t dim);
[[nodiscard]] tensordict mean(const tensordict& td, std::int64_t dim);
[[nodiscard]] tensordict all(const tensordict& td, std::int64_t dim);
[[nodiscard]] tensordict any(const tensordict& td, std::int64_t dim);
/// Of each tensor as a whole: tensors without dimensions, batch size [].
[[nodiscard]] tensordict sum(const tensordict& td);
[[nodiscard]] tensordict mean(const tensordict& td);
/// The 2-norm of each tensor as a whole.
[[nodiscard]] tensordict norm(const tensordict& td);
/// Of all elements of all tensors; true and false if there is none.
[[nodiscard]] bool all(const tensordict& td);
[[nodiscard]] bool any(const tensordict& td);
/// Equal keys, shapes and data, and values up to rounding (at::allclose).
[[nodiscard]] bool allclose(const tensordict& a, const tensordict& b, double relative = 1e-5,
                            double absolute = 1e-8);

/// `mask`: bool, of the batch size. `where`: `a` where it is true, `b` elsewhere.
[[nodiscard]] tensordict where(const at::Tensor& mask, const tensordict& a, const tensordict& b);
[[nodiscard]] tensordict masked_fill(const tensordict& td, const at::Tensor& mask,
                                     const at::Scalar& value);
[[nodiscard]] tensordict masked_select(const tensordict& td, const at::Tensor& mask);

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/tensordict/impl/ops_once.hpp>
#endif
