// SPDX-License-Identifier: BSL-1.0
// Results and arguments into memory that is there already: nothing is allocated, nothing copied.
//
//   at::Tensor weights = at::empty({1024, 1024});
//   co_await p.call<&current_weights>(weft::into(weights));      // a result
//
//   at::Tensor here(const weft::announced&) { return buffer; }   // an argument, at the callee
//   void load(weft::into<at::Tensor, &here> weights);
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/wire/tensor.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

/// Option of a call whose function returns an at::Tensor: the result is read into `to`, which the
/// call gives. From a socket its bytes go there directly. Other transports, bools, and results of
/// other strides cost a copy. `to` is a dense CPU tensor of the result's dtype and sizes, does not
/// require grad, and shares no memory with a tensor that is an argument. Nobody else uses it until
/// the call has ended. Then nothing writes there any more, however the call ended; after an error
/// its contents are unspecified. A result that does not fit, or requires grad, fails the call with
/// invalid_argument. For `call`, also with other options.
template <>
class into<at::Tensor> {
 public:
  /// Throws rpc_error: invalid_argument for a tensor that can be no destination.
  explicit into(at::Tensor to);
  [[nodiscard]] const at::Tensor& tensor() const noexcept { return to_; }

  /// For one call.
  [[nodiscard]] intrusive_ptr<given_memory> give() const;

 private:
  at::Tensor to_;
};
into(at::Tensor) -> into<at::Tensor>;

template <class T>
inline constexpr bool is_call_option<into<T>> = true;

/// What is known of a tensor before its bytes are read.
struct announced {
  at::ScalarType dtype;
  std::vector<std::int64_t> sizes;
};

/// Parameter of a function, for an at::Tensor that is read into the tensor that `Place` names:
/// `at::Tensor place(const weft::announced&)`. `Place` runs on the thread that reads and must not
/// block, as an `immediate` function; at times twice for one call. The destination is as that of a
/// result, above; else, or if `Place` throws, the call fails, and the link lives. From the time
/// when it is named, nobody else uses it until the function has ended. It may be written though the
/// function never runs, as when the link is lost. Parameters that come first are read there
/// directly; behind others, or where a result would be copied, they are copied.
template <auto Place>
  requires(Place != nullptr)
class into<at::Tensor, Place> {
 public:
  into(at::Tensor t) noexcept : tensor_(std::move(t)) {}  // NOLINT: callers give a tensor
  [[nodiscard]] const at::Tensor& tensor() const noexcept { return tensor_; }

 private:
  at::Tensor tensor_;
};

}  // namespace weft

#include <weft/rpc/impl/into.hpp>
