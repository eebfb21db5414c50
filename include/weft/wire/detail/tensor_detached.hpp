// SPDX-License-Identifier: BSL-1.0
// Tensors as values, without their history.
#pragma once

#include <weft/wire/reader.hpp>
#include <weft/wire/tensor.hpp>

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace weft::detail {

/// The tensors of the message that `r` reads arrive detached. Before the first is decoded.
inline void receive_detached(reader& r) {
  if (auto* table = r.record().template find<tensor_table>()) {
    table->on_received = [](std::span<at::Tensor> tensors, const std::vector<bool>&) {
      for (at::Tensor& t : tensors) t = t.detach();
    };
  }
}

}  // namespace weft::detail
