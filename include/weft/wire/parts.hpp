// SPDX-License-Identifier: BSL-1.0
// A message's hand-over record: where a codec deep inside a value meets the service that owns
// what it writes (tensors, references), without either knowing the other's callers.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace weft {

class message;

/// Base of what is kept in the record, one object per class and message.
struct part {
  virtual ~part() = default;
  /// Called once by `message::finish`, before the frame is made: the last chance to add sections
  /// and blobs. May throw `rpc_error`.
  virtual void finish(message&) {}
};

namespace detail {
template <class P>
inline char part_key = 0;  // only its address is used
}  // namespace detail

/// Parts by class, in the order in which they were first asked for. Unused: no allocation.
class parts {
 public:
  /// The message's only P, made at first use by `P::make()` if there is one.
  template <class P>
  P& get() {
    if (P* found = find<P>()) return *found;
    std::unique_ptr<P> fresh;
    if constexpr (requires { P::make(); }) {
      fresh = P::make();
    } else {
      fresh = std::make_unique<P>();
    }
    P& result = *fresh;
    parts_.emplace_back(&detail::part_key<P>, std::move(fresh));
    return result;
  }
  template <class P>
  [[nodiscard]] P* find() const noexcept {
    for (const auto& [key, held] : parts_) {
      if (key == &detail::part_key<P>) return static_cast<P*>(held.get());
    }
    return nullptr;
  }

  [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }
  [[nodiscard]] part& operator[](std::size_t i) noexcept { return *parts_[i].second; }

 private:
  std::vector<std::pair<const void*, std::unique_ptr<part>>> parts_;
};

}  // namespace weft
