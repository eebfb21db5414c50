// SPDX-License-Identifier: BSL-1.0
// Takes a frame through its bytes, as a connection would.
#pragma once

#include <weft/wire/frame.hpp>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace weft_test {

/// Memory of exactly `size` bytes, so that a sanitizer sees what reads beyond it.
class heap_owner final : public weft::blob_owner {
 public:
  explicit heap_owner(std::size_t size)
      : data_(static_cast<std::byte*>(::operator new(size, std::align_val_t(64)))) {}
  ~heap_owner() override { ::operator delete(data_, std::align_val_t(64)); }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_;
};

inline weft::blob copy_of(std::span<const std::byte> bytes) {
  auto owner = weft::make_intrusive<heap_owner>(bytes.size());
  if (!bytes.empty()) std::memcpy(owner->data(), bytes.data(), bytes.size());
  return weft::blob(owner->data(), bytes.size(), owner);
}

/// A frame equal to `f` in other memory; its header is decoded from the head's bytes.
inline weft::expected<weft::frame> copy_of(const weft::frame& f,
                                           const weft::limits& limit = weft::default_limits) {
  weft::frame out;
  out.head.append(f.head.data(), f.head.size());
  auto header = weft::decode_header(
      std::span<const std::byte, weft::header_size>(out.head.data(), weft::header_size), limit);
  if (!header) return tl::unexpected(header.error());
  out.header = *header;
  for (const weft::blob& b : f.blobs) out.blobs.push_back(copy_of({b.data(), b.size()}));
  return out;
}

}  // namespace weft_test
