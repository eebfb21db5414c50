// SPDX-License-Identifier: BSL-1.0
// Frames of kind autograd: a message's bytes, and gradients as the tensors of the frame.
#pragma once

#include <weft/autograd/nodes.hpp>
#include <weft/core/error.hpp>
#include <weft/wire/detail/tensor_error.hpp>
#include <weft/wire/frame.hpp>
#include <weft/wire/limits.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/tensor.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::autograd {

/// Makes a frame of a message and its gradients. Throws rpc_error if gradients cannot be sent or
/// are too large. If one is undefined, it throws invalid_argument: undefined ones are not sent.
/// `section`, if not empty, says as which recorded message they travel.
[[nodiscard]] inline frame seal(std::span<const std::byte> what, const limits& bounds,
                                std::span<const at::Tensor> tensors = {},
                                std::span<const std::byte> section = {}) {
  message m(bounds);
  m.payload().count(what.size());
  m.payload().raw(what.data(), what.size());
  if (!tensors.empty()) {
    auto& table = m.record().get<tensor_table>();
    std::uint32_t place = 0;
    for (const at::Tensor& t : tensors) {
      if (!t.defined()) {
        throw rpc_error(errc::invalid_argument,
                        "gradient " + std::to_string(place) + " of the frame is undefined");
      }
      // Each has a place of its own, also if two of them are one tensor.
      if (table.add(t) != place) table.add(section.empty() ? t.detach() : t.view_as(t));
      ++place;
    }
  }
  if (!section.empty()) m.section(section_kind::autograd, section);
  frame_header header;
  header.kind = frame_kind::autograd;
  return std::move(m).finish(header);
}

/// The content of a frame. `what` points into the message. No other code holds the tensors. They
/// may share memory with each other and, inside one process, with the sender's tensors.
struct unsealed {
  std::span<const std::byte> what;
  std::vector<at::Tensor> tensors;
  error allocation_error;  ///< set: the tensors are missing, because there was no memory for them
};
/// Reads a frame of a message that was checked. Throws rpc_error if its bytes are no such frame.
/// `where`: the message was recorded, and its tensors get that history.
[[nodiscard]] inline unsealed unseal(incoming_message& m,
                                     const std::optional<peer_message>& where = {}) {
  unsealed out;
  out.allocation_error = m.allocation_error();
  reader r = m.payload();
  out.what = r.raw(r.count(1));
  if (m.section(section_kind::tensors)) {
    auto& table = m.record().get<tensor_table>();
    table.on_received = [&where](std::span<at::Tensor> tensors, const std::vector<bool>&) {
      if (!where) return;  // gradients are no leaves
      try {
        record_receive(tensors, *where);
      } catch (const std::invalid_argument& e) {
        throw rpc_error(errc::bad_arguments, e.what());
      }
    };
    table.only_read = true;
    try {
      table.open(r);
      out.tensors = table.take();
    } catch (const rpc_error&) {
      throw;
    } catch (const std::exception& e) {  // libtorch has no memory for them
      out.allocation_error = error(errc::resource_exhausted, weft::detail::words_of(e));
    }
  }
  r.finish();
  return out;
}

}  // namespace weft::autograd
