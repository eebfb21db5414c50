// SPDX-License-Identifier: BSL-1.0
// A message's hand-over record: where a codec deep inside a value meets the service that owns
// what it writes (tensors, references), without either knowing the other's callers.
#pragma once

#include <weft/core/detail/type_key.hpp>

#include <memory>
#include <utility>

namespace weft {

class message;

/// Base of what is kept in the record, one object per class and message.
struct message_extension {
  virtual ~message_extension() = default;
  /// Called once by `message::finish`, before the frame is made: the last chance to add sections
  /// and blobs. May throw `rpc_error`.
  virtual void finish(message&) {}

 private:
  friend class message_extensions;
  type_id key_;
  std::unique_ptr<message_extension> next_;
};

/// Parts by class, in the order in which they were first asked for. Allocates nothing but them.
class message_extensions {
 public:
  /// The message's only P, made at first use by `P::make()` if there is one.
  template <class P>
  P& get() {
    if (P* found = find<P>()) return *found;
    if constexpr (requires { P::make(); }) {
      return put<P>(P::make());
    } else {
      return put<P>(std::make_unique<P>());
    }
  }
  /// Requires that there is no P yet.
  template <class P>
  P& put(std::unique_ptr<P> fresh) noexcept {
    P& result = *fresh;
    result.message_extension::key_ = type_key<P>;
    if constexpr (requires { P::speaks_for; }) {
      service_bits_ |= 1u << static_cast<unsigned>(P::speaks_for);
    }
    std::unique_ptr<message_extension>* end = &first_;
    while (*end) end = &(*end)->next_;
    *end = std::move(fresh);
    return result;
  }
  template <class P>
  [[nodiscard]] P* find() const noexcept {
    for (message_extension* p = first_.get(); p; p = p->next_.get()) {
      if (p->key_ == type_key<P>) return static_cast<P*>(p);
    }
    return nullptr;
  }
  /// Bit `P::speaks_for` for each P in it that names a service: that has something to say.
  [[nodiscard]] std::uint32_t service_bits() const noexcept { return service_bits_; }
  /// Those too that are asked for meanwhile.
  void finish(message& m) {
    for (message_extension* p = first_.get(); p; p = p->next_.get()) p->finish(m);
  }

 private:
  std::unique_ptr<message_extension> first_;
  std::uint32_t service_bits_ = 0;
};

}  // namespace weft
