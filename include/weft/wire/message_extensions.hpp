// SPDX-License-Identifier: BSL-1.0
// The record of a message. Here a codec, deep inside a value, meets the service for its tensors or
// references; neither knows the other's callers.
#pragma once

#include <weft/core/detail/type_key.hpp>

#include <memory>
#include <utility>

namespace weft {

class message;

/// Base class of the parts in the record. A message has one object of each class.
struct message_extension {
  virtual ~message_extension() = default;
  /// `message::finish` calls it once, before it makes the frame: the last chance to add sections
  /// and blobs. May throw `rpc_error`.
  virtual void finish(message&) {}

 private:
  friend class message_extensions;
  type_id key_;
  std::unique_ptr<message_extension> next_;
};

/// The parts of a message, by class, in the order of their first use. Allocates only the parts.
class message_extensions {
 public:
  /// The message's only P. The first use makes it, by `P::make()` if P has that.
  template <class P>
  P& get() {
    if (P* found = find<P>()) return *found;
    if constexpr (requires { P::make(); }) {
      return put<P>(P::make());
    } else {
      return put<P>(std::make_unique<P>());
    }
  }
  /// Adds a P. Requires that the message has none yet.
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
  /// Bit `P::speaks_for` is set for each P in the record that has data for a service.
  [[nodiscard]] std::uint32_t service_bits() const noexcept { return service_bits_; }
  /// Finishes all parts, also those that are added meanwhile.
  void finish(message& m) {
    for (message_extension* p = first_.get(); p; p = p->next_.get()) p->finish(m);
  }

 private:
  std::unique_ptr<message_extension> first_;
  std::uint32_t service_bits_ = 0;
};

}  // namespace weft
