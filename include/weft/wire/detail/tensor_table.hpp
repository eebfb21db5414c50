// SPDX-License-Identifier: BSL-1.0
// The one kind of tensor table there is.
#pragma once

#include <weft/config.hpp>
#include <weft/wire/detail/pass_on.hpp>
#include <weft/wire/detail/tensor_order.hpp>
#include <weft/wire/tensor.hpp>
#include <weft/wire/tensor_desc.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace weft::detail {

WEFT_PROCESS_WIDE inline constexpr char tensor_blob_key = 0;  // only its address is used

/// Keeps a tensor's storage until its bytes are sent; in process, until the receiver has its own.
class tensor_blob_owner final : public blob_owner {
 public:
  explicit tensor_blob_owner(c10::Storage storage) noexcept : storage_(std::move(storage)) {}
  ~tensor_blob_owner() override { before_drop(storage_); }
  [[nodiscard]] const void* kind() const noexcept override { return tag(); }
  [[nodiscard]] static const void* tag() noexcept { return &tensor_blob_key; }
  [[nodiscard]] const c10::Storage& storage() const noexcept { return storage_; }

 private:
  c10::Storage storage_;
};

/// What encodes and decodes the tensors of one message; the one implementation there is.
class torch_tensor_table final : public weft::tensor_table {
 public:
  std::uint32_t add(const at::Tensor& tensor) override;
  void finish(message& m) override;
  [[nodiscard]] const at::Tensor& received(reader& r, std::uint32_t index) override;
  void open(reader& r) override;
  static void pass_on(incoming_message& from, message& to);

 private:
  std::unordered_map<const void*, std::uint32_t> index_of_;  // used once there are many
  bool open_ = false;
  bool passed_on_ = false;  // what it has came in a message, so that nothing of it needs a copy
};

/// Makes them known to `codec<at::Tensor>` before main, wherever this file is compiled in.
inline const bool tensors_are_known = [] {
  make_tensor_table = []() -> std::unique_ptr<weft::tensor_table> {
    return std::make_unique<torch_tensor_table>();
  };
  pass_tensors_on = &torch_tensor_table::pass_on;
  detach_received = [](reader& of) {
    if (auto* table = of.record().find<weft::tensor_table>()) {
      table->on_received = [](std::span<at::Tensor> tensors, const std::vector<bool>&) {
        for (at::Tensor& t : tensors) t = t.detach();
      };
    }
  };
  encoded_tensor_bytes = [](writer& into) {
    std::uint64_t bytes = 0;
    if (const auto* table = into.record().find<weft::tensor_table>()) {
      for (const at::Tensor& t : table->tensors()) bytes += t.has_storage() ? t.nbytes() : 0;
    }
    return bytes;
  };
  return true;
}();

}  // namespace weft::detail

#include <weft/wire/detail/tensor_pack.hpp>
#include <weft/wire/detail/tensor_unpack.hpp>
