// SPDX-License-Identifier: BSL-1.0
// Whole frames on their way between two hosts of a simulated world.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/sim/network.hpp>
#include <weft/transport/concepts.hpp>
#include <weft/transport/frame_queue.hpp>
#include <weft/transport/outbox.hpp>
#include <weft/wire/blob.hpp>

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace weft::sim::detail {

/// Stands where `detail::frame_pipe` stands in a connection. Tensors are copied, as two processes
/// share no memory.
class frame_channel final : public channel {
 public:
  static constexpr bool same_process = false;
  static constexpr std::size_t most_frames = 1024;
  enum class taken : std::uint8_t { frames, nothing, ended };

  using channel::channel;

  [[nodiscard]] write_status put(outbox& batch) noexcept {
    return weft::detail::or_die([&] {
      if (ended()) return write_status::closed;
      while (!batch.empty() && has_room()) {
        frame f = batch.take();
        for (blob& b : f.blobs) b = copied(b);
        bytes_ += f.wire_size();
        queue_.push(std::move(f));
        sent(1);
      }
      if (batch.empty()) return write_status::everything;
      static_cast<void>(may_put());
      return write_status::blocked;
    });
  }
  [[nodiscard]] taken take(frame_queue& out) {
    if (arrived() == 0) {
      if (end_arrived()) return taken::ended;
      wait_to_read();
      return taken::nothing;
    }
    while (arrived() > 0) {
      frame f = queue_.pop();
      bytes_ -= f.wire_size();
      out.push(std::move(f));
      took(1);
    }
    return taken::frames;
  }

 private:
  struct memory final : blob_owner {
    explicit memory(const blob& b) : bytes(b.data(), b.data() + b.size()) {}
    std::vector<std::byte> bytes;
  };
  static blob copied(const blob& b) {
    auto owner = make_intrusive<memory>(b);
    std::byte* const data = owner->bytes.data();
    return {data, b.size(), std::move(owner)};
  }

  [[nodiscard]] bool has_room() const noexcept override {
    return queue_.empty() || (queue_.size() < most_frames && bytes_ < net().wires().buffer_bytes);
  }
  void forget_in_flight() override {
    frame_queue kept;
    for (std::uint64_t i = 0; i < arrived(); ++i) kept.push(queue_.pop());
    queue_ = std::move(kept);
    bytes_ = 0;
    for (std::size_t i = 0; i < queue_.size(); ++i) bytes_ += queue_[i].wire_size();
  }

  frame_queue queue_;  // arrived first
  std::uint64_t bytes_ = 0;
};

}  // namespace weft::sim::detail
