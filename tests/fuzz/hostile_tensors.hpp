// SPDX-License-Identifier: BSL-1.0
// Tensors that an input describes in few bytes, right or wrong, and what must hold of those that a
// decoder made of it.
//
//   buffers   count 1, then for each {size 1, content 1}: sizes above 127 count 64 bytes each; the
//             content is zeros, ones, numbers of 8 bytes that count up, or the next bytes
//   section   how 1: raw, with a length of 2 bytes, or {named 1, parts 1} and descriptors of
//             {dtype 1, layout and flags 1, dimensions 1, buffer 1, offset 1, sizes 1 each,
//             strides 1 each if it is strided}
#pragma once

#include <weft/wire/bytes.hpp>
#include <weft/wire/detail/tensor_table.hpp>
#include <weft/wire/tensor_desc.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>
#include <wire/sent_over.hpp>

namespace weft_fuzz {

/// An input, from its front; zeros behind its end.
class given_bytes {
 public:
  explicit given_bytes(std::span<const std::byte> all) : left_(all) {}
  std::uint8_t one() {
    if (left_.empty()) return 0;
    const auto first = static_cast<std::uint8_t>(left_.front());
    left_ = left_.subspan(1);
    return first;
  }
  std::size_t two() {
    const std::size_t low = one();
    return low | std::size_t{one()} << 8;
  }
  std::span<const std::byte> take(std::size_t n) {
    const auto out = left_.first(std::min(n, left_.size()));
    left_ = left_.subspan(out.size());
    return out;
  }
  std::span<const std::byte> rest() { return take(left_.size()); }
  [[nodiscard]] bool at_end() const noexcept { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

/// The section and the memory of a message's tensors.
struct described_tensors {
  std::vector<weft::blob> buffers;
  weft::bytes section;
};

/// Where the memory of a buffer comes from.
enum class sent_from : std::uint8_t { elsewhere, unaligned, nobody, here, here_and_kept };

/// What lives as long as the message, beside what that owns.
struct lent_memory {
  std::vector<at::Tensor> tensors;
  std::vector<weft::blob> blobs;
};

inline weft::blob buffer_of(std::span<const std::byte> content, sent_from where,
                            lent_memory& lent) {
  switch (where) {
  case sent_from::elsewhere:
    return weft_test::copy_of(content);
  case sent_from::unaligned: {
    auto owner = weft::make_intrusive<weft_test::heap_owner>(content.size() + 1);
    if (!content.empty()) std::memcpy(owner->data() + 1, content.data(), content.size());
    return weft::blob(owner->data() + 1, content.size(), owner);
  }
  case sent_from::nobody: {  // bytes of the frame's head, say
    const weft::blob& b = lent.blobs.emplace_back(weft_test::copy_of(content));
    return weft::blob(b.data(), b.size(), nullptr);
  }
  case sent_from::here:
  case sent_from::here_and_kept:
    break;
  }
  const auto size = static_cast<std::int64_t>(content.size());
  at::Tensor memory = at::empty({size}, at::kByte);
  if (size > 0) std::memcpy(memory.mutable_data_ptr(), content.data(), content.size());
  auto owner = weft::make_intrusive<weft::detail::tensor_blob_owner>(memory.storage());
  auto* data = static_cast<std::byte*>(memory.storage().mutable_data());
  if (where == sent_from::here_and_kept) lent.tensors.push_back(std::move(memory));
  return weft::blob(data, content.size(), std::move(owner));
}

inline std::vector<std::byte> content_of(given_bytes& in) {
  std::size_t size = in.one();
  if (size > 127) size = (size - 127) * 64;
  std::vector<std::byte> out(size);
  switch (in.one() % 4) {
  case 0:
    break;
  case 1:
    std::fill(out.begin(), out.end(), std::byte{1});
    break;
  case 2:
    for (std::size_t i = 0; i + 8 <= size; i += 8) out[i] = static_cast<std::byte>(i / 8);
    break;
  default:
    std::ranges::copy(in.take(size), out.begin());
  }
  return out;
}

inline std::int64_t size_of(std::uint8_t b) {
  constexpr std::array<std::int64_t, 8> odd = {-1,
                                               std::int64_t{1} << 32,
                                               std::int64_t{1} << 48,
                                               (std::int64_t{1} << 48) + 1,
                                               std::int64_t{1} << 24,
                                               4096,
                                               std::numeric_limits<std::int64_t>::max(),
                                               std::numeric_limits<std::int64_t>::min()};
  return b < 248 ? b : odd[b - 248];
}

inline weft::tensor_desc desc_of(given_bytes& in) {
  weft::tensor_desc d;
  d.dtype = in.one();
  const unsigned bits = in.one();
  d.layout = static_cast<weft::tensor_layout>(bits & 3);
  d.flags = static_cast<std::uint8_t>(bits >> 2 & 15);
  const unsigned dims = in.one();
  d.ndim = static_cast<std::uint8_t>(dims < 128 ? dims % 8 : dims - 127);
  const unsigned buffer = in.one();
  d.buffer = buffer < 128 ? buffer : weft::no_buffer - (255 - buffer);
  const std::uint64_t offset = in.one();
  d.offset = offset < 200 ? offset
                          : static_cast<std::uint64_t>(size_of(static_cast<std::uint8_t>(offset)));
  for (std::size_t i = 0; i < d.ndim && i < weft::max_tensor_dims; ++i)
    d.size[i] = size_of(in.one());
  for (std::size_t i = 0; i < d.strides().size() && i < weft::max_tensor_dims; ++i) {
    d.stride[i] = size_of(in.one());
  }
  if (d.ndim > weft::max_tensor_dims) d.ndim = weft::max_tensor_dims;
  return d;
}

/// What stands at the front of the input.
inline described_tensors read_tensors(given_bytes& in, sent_from where, lent_memory& lent) {
  described_tensors out;
  for (unsigned i = in.one() % 5; i > 0; --i) {
    out.buffers.push_back(buffer_of(content_of(in), where, lent));
  }
  if (in.one() % 8 == 7) {
    const auto raw = in.take(in.two());
    out.section.append(raw.data(), raw.size());
    return out;
  }
  const std::uint32_t named = in.one() % 8;
  const std::uint32_t parts = in.one() % 8;
  out.section.number(named);
  out.section.number(named + parts);
  for (std::uint32_t i = 0; i < named + parts; ++i) weft::encode_desc(out.section, desc_of(in));
  return out;
}

// ── what must hold ──

[[noreturn]] inline void broken() { std::abort(); }

/// Elements beyond this many are not looked at one by one.
inline constexpr std::int64_t most_elements = 4096;

inline std::uint64_t sum_of_bytes(const std::byte* from, std::size_t n) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<std::uint64_t>(from[i]);
  return sum;
}

/// Calls f(pointer) for each element, in the order of its indices.
template <class F>
void for_each_element(const at::Tensor& t, F&& f) {
  const std::int64_t n = t.numel();
  if (n == 0) return;
  const auto width = static_cast<std::int64_t>(t.element_size());
  const auto* base = static_cast<const std::byte*>(t.storage().data());
  std::vector<std::int64_t> at(static_cast<std::size_t>(t.dim()), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t place = t.storage_offset();
    for (std::int64_t d = 0; d < t.dim(); ++d) {
      place += at[static_cast<std::size_t>(d)] * t.stride(d);
    }
    f(base + place * width);
    for (std::int64_t d = t.dim() - 1; d >= 0; --d) {
      if (++at[static_cast<std::size_t>(d)] < t.size(d)) break;
      at[static_cast<std::size_t>(d)] = 0;
    }
  }
}

/// Its memory is there, all of it. Returns what its bytes sum up to, so that all are read.
inline std::uint64_t look_at_strided(const at::Tensor& t) {
  bool empty = false;
  for (std::int64_t d = 0; d < t.dim(); ++d) {
    if (t.size(d) < 0 || t.stride(d) < 0) broken();
    empty = empty || t.size(d) == 0;
  }
  if (empty) return 0;
  std::uint64_t extent = 1;  // elements from the first to the last
  for (std::int64_t d = 0; d < t.dim(); ++d) {
    std::uint64_t further = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(t.size(d) - 1),
                               static_cast<std::uint64_t>(t.stride(d)), &further) ||
        __builtin_add_overflow(extent, further, &extent)) {
      broken();
    }
  }
  const std::uint64_t width = t.element_size();
  const std::uint64_t room = t.storage().nbytes() / width;
  const auto first = static_cast<std::uint64_t>(t.storage_offset());
  if (t.storage_offset() < 0 || first > room || extent > room - first) broken();
  const auto* data = static_cast<const std::byte*>(t.storage().data()) + first * width;
  if (reinterpret_cast<std::uintptr_t>(data) % std::min<std::uint64_t>(width, 16) != 0) broken();
  std::uint64_t sum = sum_of_bytes(data, extent * width);
  if (t.numel() <= most_elements) {
    for_each_element(t, [&](const std::byte* each) { sum += sum_of_bytes(each, width); });
  }
  return sum;
}

/// Sparse ones: indices within the sizes, sorted and without another of their kind if they say so.
inline std::uint64_t look_at(const at::Tensor& t) {
  if (!t.defined()) return 0;
  if (t.requires_grad() && !t.is_floating_point() && !t.is_complex()) broken();
  if (!t.is_sparse()) return look_at_strided(t);
  const at::Tensor indices = t._indices();
  const at::Tensor values = t._values();
  std::uint64_t sum = look_at_strided(indices) + look_at_strided(values);
  const std::int64_t dims = indices.size(0);
  const std::int64_t count = indices.size(1);
  if (dims != t.sparse_dim() || values.size(0) != count) broken();
  if (values.dim() != t.dim() - dims + 1) broken();
  for (std::int64_t d = dims; d < t.dim(); ++d) {
    if (values.size(d - dims + 1) != t.size(d)) broken();
  }
  if (indices.numel() > most_elements) return sum;
  std::vector<std::int64_t> all;
  for_each_element(indices, [&](const std::byte* each) {
    std::memcpy(&all.emplace_back(), each, sizeof(std::int64_t));
  });
  const auto at = [&](std::int64_t d, std::int64_t k) {
    return all[static_cast<std::size_t>(d * count + k)];
  };
  for (std::int64_t k = 0; k < count; ++k) {
    bool greater = k == 0;
    for (std::int64_t d = 0; d < dims; ++d) {
      if (at(d, k) < 0 || at(d, k) >= t.size(d)) broken();
      if (greater || k == 0) continue;
      if (t.is_coalesced() && at(d, k) < at(d, k - 1)) broken();
      greater = at(d, k) > at(d, k - 1);
    }
    if (t.is_coalesced() && !greater) broken();
  }
  return sum;
}

/// Equal bit for bit, wherever they lie.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.layout() != b.layout() ||
      a.requires_grad() != b.requires_grad()) {
    return false;
  }
  if (a.is_sparse()) {
    return a.is_coalesced() == b.is_coalesced() && same_bits(a._indices(), b._indices()) &&
           same_bits(a._values().detach(), b._values().detach());
  }
  if (a.numel() > most_elements) return true;
  const std::size_t width = a.element_size();
  std::vector<std::byte> left, right;
  const auto into = [width](std::vector<std::byte>& to) {
    return [width, &to](const std::byte* each) { to.insert(to.end(), each, each + width); };
  };
  for_each_element(a, into(left));
  for_each_element(b, into(right));
  return left == right;
}

}  // namespace weft_fuzz
