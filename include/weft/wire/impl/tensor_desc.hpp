// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/wire/tensor_desc.hpp.
#pragma once

#include <weft/core/detail/little_endian.hpp>
#include <weft/wire/detail/budget.hpp>
#include <weft/wire/header.hpp>
#include <weft/wire/tensor_desc.hpp>

#include <algorithm>

namespace weft {
namespace detail {

// What may be wrong with one descriptor by itself, given the buffers; nullptr: nothing.
[[nodiscard]] WEFT_DECL const char* judge(const tensor_desc& d,
                                          std::span<const blob> buffers) noexcept {
  if (d.layout == tensor_layout::undefined) {
    const bool plain =
        d.dtype == 0 && d.flags == 0 && d.ndim == 0 && d.buffer == no_buffer && d.offset == 0;
    return plain ? nullptr : "an undefined tensor with properties";
  }
  const std::size_t item = item_size(d.dtype);
  if (item == 0) return "an unknown dtype";
  const int any = tensor_requires_grad | tensor_computed;
  const int known = d.layout == tensor_layout::sparse_coo ? any | tensor_coalesced : any;
  if ((d.flags & ~known) != 0) return "unknown flags";
  if ((d.flags & any) == tensor_computed) return "a history of a tensor that requires no grad";
  if ((d.flags & tensor_requires_grad) != 0 && !is_differentiable(d.dtype)) {
    return "a tensor that requires grad but is not floating point";
  }
  const tensor_shape shape = shape_of(d);
  if (!shape.fits) return "sizes or strides out of bounds";
  if (d.layout == tensor_layout::sparse_coo) {
    return d.offset == 0 ? nullptr : "a sparse tensor with an offset";
  }
  if (shape.elements == 0) {
    return d.buffer == no_buffer && d.offset == 0 ? nullptr : "an empty tensor with a buffer";
  }
  if (d.buffer >= buffers.size()) return "a buffer that is not there";
  const std::uint64_t there = buffers[d.buffer].size();
  if (d.offset % item != 0) return "an offset that is not a multiple of the element";
  if (d.offset > there || shape.extent > (there - d.offset) / item) {
    return "elements beyond the end of the buffer";
  }
  return nullptr;
}

}  // namespace detail

WEFT_DECL tensor_shape shape_of(const tensor_desc& d) noexcept {
  using detail::saturating_add;
  using detail::saturating_multiply;
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  tensor_shape result;
  if (d.ndim > max_tensor_dims) return result;
  std::uint64_t product = 1;  // of the sizes that are not zero
  std::uint64_t last = 0;     // index of the last element
  bool none = false;
  for (std::size_t i = 0; i < d.ndim; ++i) {
    const std::int64_t size = d.size[i];
    if (size < 0 || size > max_tensor_size) return result;
    if (size == 0) none = true;
    product =
        saturating_multiply(product, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)));
    if (d.layout != tensor_layout::strided) continue;
    const std::int64_t stride = d.stride[i];
    if (stride < 0 || stride > max_tensor_size) return result;
    if (size > 1) {
      last = saturating_add(last, saturating_multiply(static_cast<std::uint64_t>(size - 1),
                                                      static_cast<std::uint64_t>(stride)));
    }
  }
  if (product > most / 16 || last > most / 16) return result;
  result.fits = true;
  result.elements = none ? 0 : product;
  result.extent = none ? 0 : last + 1;
  return result;
}

WEFT_DECL void encode_desc(bytes& out, const tensor_desc& d) {
  std::byte fixed[detail::desc_size] = {};
  detail::store(fixed + 0, d.dtype);
  detail::store(fixed + 1, d.layout);
  detail::store(fixed + 2, d.flags);
  detail::store(fixed + 3, d.ndim);
  detail::store(fixed + 8, d.buffer);
  detail::store(fixed + 16, d.offset);
  out.append(fixed, sizeof fixed);
  out.append(d.sizes().data(), d.sizes().size_bytes());
  out.append(d.strides().data(), d.strides().size_bytes());
}

WEFT_DECL tensor_desc_reader::tensor_desc_reader(std::span<const std::byte> section) noexcept
    : section_(section) {
  if (section_.size() < detail::tensor_section_head) {
    section_ = {};  // next() and at_end() find a section without descriptors
    return;
  }
  head_.count = detail::load<std::uint32_t>(section_.data());
  head_.total = detail::load<std::uint32_t>(section_.data() + 4);
  at_ = detail::tensor_section_head;
}

WEFT_DECL const char* tensor_desc_reader::next(tensor_desc& d,
                                               std::span<const blob> buffers) noexcept {
  using detail::load;
  constexpr const char* cut = "a descriptor that is cut off";
  if (section_.size() - at_ < detail::desc_size) return cut;
  const std::byte* p = section_.data() + at_;
  at_ += detail::desc_size;
  d.dtype = load<std::uint8_t>(p);
  const auto layout = load<std::uint8_t>(p + 1);
  if (layout > static_cast<std::uint8_t>(tensor_layout::sparse_coo)) return "an unknown layout";
  d.layout = static_cast<tensor_layout>(layout);
  d.flags = load<std::uint8_t>(p + 2);
  d.ndim = load<std::uint8_t>(p + 3);
  if (load<std::uint16_t>(p + 4) != 0) return "an unknown device";
  if (load<std::uint16_t>(p + 6) != 0 || load<std::uint32_t>(p + 12) != 0) {
    return "bytes that must be zero are not";
  }
  d.buffer = load<std::uint32_t>(p + 8);
  d.offset = load<std::uint64_t>(p + 16);
  if (d.ndim > max_tensor_dims) return "more than 64 dimensions";
  const std::size_t each = std::size_t{8} * d.ndim;
  const std::size_t lists = d.layout == tensor_layout::strided ? 2 * each : each;
  if (section_.size() - at_ < lists) return cut;
  if (each > 0) {
    std::memcpy(d.size.data(), section_.data() + at_, each);
    if (lists > each) std::memcpy(d.stride.data(), section_.data() + at_ + each, each);
  }
  at_ += lists;
  return detail::judge(d, buffers);
}

WEFT_DECL std::string check_tensors(std::span<const std::byte> section,
                                    std::span<const blob> buffers) {
  if (section.size() < detail::tensor_section_head) return "a tensors section without a head";
  tensor_desc_reader in(section);
  const tensor_section head = in.head();
  const std::size_t room = (section.size() - detail::tensor_section_head) / detail::desc_size;
  if (head.total > room || head.count > head.total) {
    return "a tensors section that says it has " + std::to_string(head.total) + " tensors";
  }
  auto about = [](std::uint32_t i, const char* what) {
    return "tensor " + std::to_string(i) + ": " + what;
  };
  std::vector<bool> used(buffers.size());
  tensor_desc d;
  // The sparse tensors' parts follow in the order of their owners, which a second reader walks.
  tensor_desc_reader owners(section);
  tensor_desc owner;
  std::uint32_t next_owner = 0;
  std::uint32_t next_part = head.count;
  std::int64_t nonzeros = 0;
  for (std::uint32_t i = 0; i < head.total; ++i) {
    if (const char* wrong = in.next(d, buffers)) return about(i, wrong);
    if (d.layout == tensor_layout::strided && d.buffer != no_buffer) used[d.buffer] = true;
    if (i < head.count) {
      if (d.layout != tensor_layout::sparse_coo) continue;
      if (d.buffer != next_part) return about(i, "a sparse tensor without its parts");
      next_part += 2;
      if (next_part < head.count || next_part > head.total) {
        return about(i, "a sparse tensor without its parts");
      }
      continue;
    }
    if (d.layout != tensor_layout::strided || d.flags != 0) {
      return about(i, "not a part of a sparse tensor");
    }
    const bool indices = (i - head.count) % 2 == 0;
    if (indices) {
      do {
        if (next_owner == head.count) return about(i, "a part of no sparse tensor");
        ++next_owner;
        if (const char* wrong = owners.next(owner, buffers)) return about(next_owner, wrong);
      } while (owner.layout != tensor_layout::sparse_coo);
      if (d.dtype != dtype_int64 || d.ndim != 2 || d.size[0] > owner.ndim) {
        return about(i, "indices of a sparse tensor with a wrong shape or dtype");
      }
      owner.offset = static_cast<std::uint64_t>(d.size[0]);  // sparse dimensions, for the values
      nonzeros = d.size[1];
      continue;
    }
    const std::size_t sparse_dims = owner.offset;
    const std::size_t dense_dims = owner.ndim - sparse_dims;
    if (d.dtype != owner.dtype || d.ndim != dense_dims + 1 || d.size[0] != nonzeros ||
        !std::equal(owner.size.begin() + static_cast<std::ptrdiff_t>(sparse_dims),
                    owner.size.begin() + owner.ndim, d.size.begin() + 1)) {
      return about(i, "values of a sparse tensor with a wrong shape or dtype");
    }
  }
  if (next_part != head.total) return "parts of no sparse tensor";
  if (!in.at_end()) return "bytes after the last tensor";
  if (std::find(used.begin(), used.end(), false) != used.end()) {
    return "a tensor buffer that no tensor uses";
  }
  return {};
}

}  // namespace weft
