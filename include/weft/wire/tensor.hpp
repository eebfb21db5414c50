// SPDX-License-Identifier: BSL-1.0
// Tensors in messages: the payload has their indices, the frame's buffers are their memory.
//
//   sender     codec -> tensor_table.add -> ... message.finish: descriptors, one blob per range of
//              storage, none copied unless a view has gaps
//   receiver   first tensor decoded -> section and blobs checked -> storages over the blobs
//
// The receiver's tensor has memory of its own: in-place changes on one side are not visible on the
// other. Inside one process (inproc, and a worker's calls to itself) the receiver copies the bytes,
// unless only the message still has them, as for a result that a function computed. Tensors of one
// message whose bytes overlap arrive sharing storage. A view with gaps (base[:, 0:2]) shares only
// with tensors without gaps that cover it.
//
// A tensor is sent from where it is. If you change it in place before its bytes have left, it
// arrives changed, or half changed. When a call has ended, its arguments have left. If a function
// returns a tensor that others go on to change, it must return a copy (wire/tensor_copies.hpp).
// Memory that a tensor does not own (at::from_blob) must live as long.
#pragma once

#include <weft/config.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/detail/pass_on.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/structure.hpp>
#include <weft/wire/tensor_values.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

class tensor_table;

namespace detail {
/// Set before main, as the table of functions is.
WEFT_PROCESS_WIDE inline constinit std::unique_ptr<tensor_table> (*make_tensor_table)() = nullptr;
}  // namespace detail

/// The tensors of one message, a part of its record. For codecs, such as that of at::Tensor below.
/// One thread at a time uses it.
///
///   w.number(w.extension<weft::tensor_table>().add(value));
class tensor_table : public message_extension {
 public:
  /// Throws `rpc_error` with `not_encodable` if no file of the program includes weft/run.hpp.
  [[nodiscard]] static std::unique_ptr<tensor_table> make() {
    if (detail::make_tensor_table == nullptr) detail::no_tensors_known();
    return detail::make_tensor_table();
  }

  // ---- sender
  /// Adds a tensor and returns its index. The same tensor again has the same index. Throws
  /// `rpc_error` with `not_encodable` for a tensor that cannot be sent (quantised, nested, CUDA,
  /// ...).
  virtual std::uint32_t add(const at::Tensor& tensor) = 0;
  /// The added tensors, by index, until the frame is made. Their storage is held until it is sent.
  [[nodiscard]] std::span<const at::Tensor> tensors() const noexcept { return tensors_; }

  // ---- receiver
  /// Called once, before any tensor is handed out. It gets the tensors that require grad at the
  /// sender, in the order of their indices, and may replace them. `computed` says which of them
  /// were computed there, so have a history. Without it they are leaves that require grad.
  std::function<void(std::span<at::Tensor>, const std::vector<bool>& computed)> on_received;
  /// The tensor with that index in the message that `r` reads. The first call checks and builds all
  /// tensors.
  [[nodiscard]] virtual const at::Tensor& received(reader& r, std::uint32_t index) = 0;
  /// Set it before the first `received` or `open` if you change no tensor in place. Inside one
  /// process the tensors may then be in the sender's memory.
  bool only_read = false;
  /// Checks and builds all tensors, before a codec asks for one.
  virtual void open(reader& r) = 0;
  /// After `open`: all tensors. The table keeps none.
  [[nodiscard]] std::vector<at::Tensor> take() noexcept { return std::exchange(tensors_, {}); }

  /// A receiver charges this for each tensor, beside its bytes.
  static constexpr std::uint64_t cost = 448;

 protected:
  std::vector<at::Tensor> tensors_;
};

/// A tensor may be an argument, a result, or anywhere inside a value: `p.call<&scale>(x, 2.0)`.
/// Throws not_encodable for a tensor that cannot be sent, bad_arguments for a message with wrong
/// data.
template <>
struct codec<at::Tensor> {
  static constexpr std::size_t min_size = 4;
  static void encode(writer& w, const at::Tensor& value) {
    w.number(w.extension<tensor_table>().add(value));
  }
  static at::Tensor decode(reader& r) {
    const auto index = r.number<std::uint32_t>();
    return r.extension<tensor_table>().received(r, index);
  }
};

template <>
struct structure<at::Tensor> {
  static constexpr std::string_view tag = "at::Tensor 1";
};

}  // namespace weft
