// SPDX-License-Identifier: BSL-1.0
// The one kind of tensor table there is.
#pragma once

#include <weft/wire/tensor.hpp>

#include <cstdint>
#include <memory>
#include <unordered_map>

namespace weft {
namespace detail {

/// A template only so that its bodies are compiled where `use_tensors` is called and nowhere else.
template <class T>
class live_tensor_table final : public tensor_table {
 public:
  std::uint32_t add(const at::Tensor& tensor) override;
  void finish(message& m) override;
  [[nodiscard]] const at::Tensor& received(reader& r, std::uint32_t index) override;
  void open(reader& r) override;

 private:
  std::unordered_map<const void*, std::uint32_t> index_of_;  // used once there are many
  bool open_ = false;
};

template <class T>
inline const bool tensors_used = [] {
  make_tensor_table = []() -> std::unique_ptr<tensor_table> {
    return std::make_unique<live_tensor_table<T>>();
  };
  return true;
}();

}  // namespace detail

template <class T>
void use_tensors() noexcept {
  static_cast<void>(&detail::tensors_used<T>);
}

}  // namespace weft

#include <weft/wire/impl/tensor_receive.hpp>
#include <weft/wire/impl/tensor_send.hpp>
