// SPDX-License-Identifier: BSL-1.0
// Memory that is there before a message's tensors come, and into which they are read.
#pragma once

#include <weft/wire/blob.hpp>

#include <cstddef>
#include <mutex>

namespace weft {

struct frame;

/// The owner of blobs that a receiver names, and may take back at any time. Any thread.
///
///   receiver: gives it ─► … the call ends: take_back() ─► nobody writes there any more
///   reader:               hold ─► still given? read ─► let go
class given_memory : public blob_owner {
 public:
  /// Where the bytes of that tensor buffer go; nullptr: elsewhere, it does not fit. `head` is
  /// complete and checked.
  [[nodiscard]] virtual std::byte* place(const frame& head, std::size_t buffer,
                                         std::size_t bytes) noexcept = 0;

  /// Once this returns, nothing is written there any more. Waits for a read that is under way, of
  /// what has come already.
  void take_back() noexcept {
    const std::lock_guard lock(mutex_);
    taken_back_ = true;
  }
  /// Held while bytes are written there.
  [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  /// Under `hold`.
  [[nodiscard]] bool is_taken_back() const noexcept { return taken_back_; }

 private:
  std::mutex mutex_;
  bool taken_back_ = false;
};

}  // namespace weft
