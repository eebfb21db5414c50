// SPDX-License-Identifier: BSL-1.0
// Tensor descriptors: the `tensors` section of a frame, checked here without libtorch.
//
//   section    count 4, total 4, then `total` descriptors. The payload has the first `count` by
//              their index (4 bytes); the others are parts of sparse tensors
//   descriptor, 24 bytes + sizes + strides
//     offset size field
//          0    1 dtype    c10::ScalarType's number, one of those in `item_size`
//          1    1 layout   0 undefined, 1 strided, 2 sparse COO
//          2    1 flags    bit 0: requires grad; bit 1: sparse and coalesced; bit 2: requires grad
//                          and was computed (no leaf); others zero
//          3    1 ndim     at most 64
//          4    2 device   type and index, 0 0: CPU
//          6    2 zero
//          8    4 buffer   index of the tensor buffer, 2^32 - 1 if the tensor has no elements;
//                          sparse: index of the descriptor of its indices, whose successor
//                          describes its values; undefined: 2^32 - 1
//         12    4 zero
//         16    8 offset   of the first element in the buffer, in bytes
//         24      sizes    ndim times 8 bytes
//                 strides  the same, in elements; strided only
//
// Tensors whose bytes overlap in one storage share a buffer. A dimension of stride 0 is expanded:
// its bytes are there once. Every buffer is described by at least one tensor.
#pragma once

#include <weft/wire/blob.hpp>
#include <weft/wire/bytes.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {

enum class tensor_layout : std::uint8_t { undefined = 0, strided = 1, sparse_coo = 2 };

inline constexpr std::uint8_t tensor_requires_grad = 1;
inline constexpr std::uint8_t tensor_coalesced = 2;
inline constexpr std::uint8_t tensor_computed = 4;
inline constexpr std::uint32_t no_buffer = 0xFFFF'FFFF;
inline constexpr std::size_t max_tensor_dims = 64;
inline constexpr std::int64_t max_tensor_size = std::int64_t{1} << 48;

/// Bytes of one element of the dtype with c10::ScalarType's number; 0: cannot be sent.
[[nodiscard]] constexpr std::size_t item_size(std::uint8_t dtype) noexcept {
  constexpr std::uint8_t sizes[46] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1,  // Byte ... Bool
                                      0, 0, 0, 2, 0, 0, 1, 1, 1, 1, 2,      // BFloat16, bits
                                      1, 1, 1, 1, 2, 4, 8,                  // Float8, UInt16 ...
                                      0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 1, 1};
  return dtype < sizeof sizes ? sizes[dtype] : 0;
}
/// Floating point or complex.
[[nodiscard]] constexpr bool is_differentiable(std::uint8_t dtype) noexcept {
  return (dtype >= 5 && dtype <= 10) || dtype == 15 || (dtype >= 23 && dtype <= 26) ||
         dtype == 44 || dtype == 45;
}
inline constexpr std::uint8_t dtype_int64 = 4;
inline constexpr std::uint8_t dtype_bool = 11;

/// One tensor of a message.
struct tensor_desc {
  std::uint8_t dtype = 0;
  tensor_layout layout = tensor_layout::undefined;
  std::uint8_t flags = 0;
  std::uint8_t ndim = 0;
  std::uint32_t buffer = no_buffer;
  std::uint64_t offset = 0;
  std::array<std::int64_t, max_tensor_dims> size;    ///< the first ndim are set
  std::array<std::int64_t, max_tensor_dims> stride;  ///< of strided ones, in elements

  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept { return {size.data(), ndim}; }
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept {
    return {stride.data(), layout == tensor_layout::strided ? std::size_t{ndim} : 0};
  }
};

/// The number of elements, and the number of elements in memory from the first to the last, both
/// included. `fits` is false if a limit of this page is exceeded.
struct tensor_shape {
  bool fits = false;
  std::uint64_t elements = 0;
  std::uint64_t extent = 0;
};
[[nodiscard]] tensor_shape shape_of(const tensor_desc& desc) noexcept;

/// The head of the section.
struct tensor_section {
  std::uint32_t count = 0;  ///< descriptors that the payload may name
  std::uint32_t total = 0;
};

namespace detail {
inline constexpr std::size_t desc_size = 24;  // without sizes and strides
inline constexpr std::size_t tensor_section_head = 8;
}  // namespace detail

/// Appends one descriptor.
void encode_desc(bytes& out, const tensor_desc& desc);

/// Reads a section's descriptors one after another, and checks each by itself.
class tensor_desc_reader {
 public:
  /// `section` must outlive the reader.
  explicit tensor_desc_reader(std::span<const std::byte> section) noexcept;
  [[nodiscard]] const tensor_section& head() const noexcept { return head_; }
  /// Reads the next descriptor. Returns nullptr, or a text that says what is wrong with it.
  [[nodiscard]] const char* next(tensor_desc& desc, std::span<const blob> buffers) noexcept;
  [[nodiscard]] bool at_end() const noexcept { return at_ == section_.size(); }

 private:
  std::span<const std::byte> section_;
  std::size_t at_ = 0;
  tensor_section head_;
};

/// Checks a whole section against the frame's buffers. Returns an empty text, or a text that says
/// what is wrong. Allocates one bit per buffer. If nothing is wrong, every descriptor lies within
/// its buffer, and every sparse tensor has indices and values that fit its sizes. (The values of
/// the indices are not checked.)
[[nodiscard]] std::string check_tensors(std::span<const std::byte> section,
                                        std::span<const blob> buffers);

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/wire/impl/tensor_desc.hpp>
#endif
