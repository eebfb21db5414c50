// SPDX-License-Identifier: BSL-1.0
// Tensors in messages: the payload names them, the frame's buffers are their memory.
//
//   sender     codec -> tensor_table.add -> ... message.finish: descriptors, one blob per range of
//              storage, none copied unless a view has gaps
//   receiver   first tensor decoded -> section and blobs checked -> storages over the blobs
//
// The receiver's tensor is a new one in memory of its own, so that neither side sees what the other
// changes in place. Inside one process (inproc, and calls to oneself) the bytes are copied when the
// receiver takes them, as a socket would between processes; not if the message is all that still
// has them, as of a result that a function computed. Tensors whose bytes overlap in one message
// arrive sharing storage; a view with gaps (base[:, 0:2]) only with tensors without gaps that cover
// it.
//
// A tensor is sent from where it is: what is changed in place before its bytes have left arrives
// changed, or half. When a call has ended its arguments have left; who returns a tensor that others
// go on to change returns a copy (wire/tensor_copies.hpp). Memory that a tensor does not own
// (at::from_blob) must live as long.
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

/// The tensors of one message, a part of its record; for codecs, such as that of at::Tensor below.
/// Used by one thread at a time.
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
  /// Puts a tensor aside and returns its index; the same tensor again has the same index. Throws
  /// `rpc_error` with `not_encodable` for what cannot travel (quantised, nested, CUDA, ...).
  virtual std::uint32_t add(const at::Tensor& tensor) = 0;
  /// Those put aside, by index, until the message is framed; their storage is held until it is
  /// sent.
  [[nodiscard]] std::span<const at::Tensor> tensors() const noexcept { return tensors_; }

  // ---- receiver
  /// Called once, before any tensor is handed out, with those that require grad on the sender's
  /// side, in the order of their indices, and which of them were computed there, so have a history;
  /// it may replace them. Without it they are leaves that require grad.
  std::function<void(std::span<at::Tensor>, const std::vector<bool>& computed)> on_received;
  /// The tensor with that index in the message that `r` reads. Checks and builds all of them at
  /// the first call.
  [[nodiscard]] virtual const at::Tensor& received(reader& r, std::uint32_t index) = 0;
  /// Set before that by who changes none of them in place: inside one process they may then be the
  /// sender's memory.
  bool only_read = false;
  /// The same, without waiting for a codec to ask.
  virtual void open(reader& r) = 0;
  /// All of them after `open`; the table keeps none.
  [[nodiscard]] std::vector<at::Tensor> take() noexcept { return std::exchange(tensors_, {}); }

  /// What a receiver charges for a tensor beside its bytes.
  static constexpr std::uint64_t cost = 448;

 protected:
  std::vector<at::Tensor> tensors_;
};

/// A tensor is an argument, a result, or anywhere inside a value: `p.call<&scale>(x, 2.0)`. Throws
/// not_encodable for what cannot travel, bad_arguments for a message that lies.
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
