// SPDX-License-Identifier: BSL-1.0
// A piece of memory of a frame: a tensor's bytes, held until they are sent, or received.
#pragma once

#include <weft/core/intrusive_ptr.hpp>

#include <cstddef>
#include <utility>

namespace weft {

/// Keeps the memory of a blob alive. Tensor code derives from it: if a frame was handed over inside
/// one process, it finds its own storage again.
class blob_owner : public ref_counted {
 public:
  /// Address of a variable that identifies the derived class, or nullptr.
  [[nodiscard]] virtual const void* kind() const noexcept { return nullptr; }
};

/// `size` bytes at `data`, alive as long as the blob. Copies share the memory.
class blob {
 public:
  blob() noexcept = default;
  blob(std::byte* data, std::size_t size, intrusive_ptr<blob_owner> owner) noexcept
      : data_(data), size_(size), owner_(std::move(owner)) {}

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] const intrusive_ptr<blob_owner>& owner() const noexcept { return owner_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  intrusive_ptr<blob_owner> owner_;
};

}  // namespace weft
