// SPDX-License-Identifier: BSL-1.0
// Results into memory that is there already.
//
//   at::Tensor weights = at::empty({1024, 1024});
//   co_await p.call<&current_weights>(weft::into(weights));  // allocates nothing, copies nothing
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/wire/tensor.hpp>

#include <ATen/core/Tensor.h>

#include <utility>

namespace weft {

namespace detail {
class tensor_given;
}  // namespace detail

template <class T>
class into;

/// Option of a call whose function returns an at::Tensor: the result is read into `to`, which the
/// call gives. From a socket its bytes go there directly. Other transports, and results of other
/// strides or that share memory, cost a copy. `to` is a dense CPU tensor of the result's dtype and
/// sizes, does not require grad, and shares no memory with a tensor that is an argument. Nobody
/// else uses it until the call has ended. Then nothing writes there any more, however the call
/// ended; after an error its contents are unspecified. A result that does not fit, or requires
/// grad, fails the call with invalid_argument. For `call`, also with other options.
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

}  // namespace weft

#include <weft/rpc/impl/into.hpp>
