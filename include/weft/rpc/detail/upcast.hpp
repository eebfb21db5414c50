// SPDX-License-Identifier: BSL-1.0
// Conversions from classes to their bases. Where an object is, only the class that it was made as
// is known: each place that treats it as one of its bases leaves the conversion in the program.
#pragma once

#include <weft/config.hpp>
#include <weft/rpc/call_target.hpp>

#include <type_traits>

namespace weft::detail {

/// A list node with static lifetime, like function_entry.
struct upcast {
  type_id derived;  ///< a class
  type_id base;     ///< ... and one of its bases
  void* (*convert)(void*) = nullptr;
  const upcast* next = nullptr;
};
WEFT_PROCESS_WIDE inline constinit const upcast* first_upcast = nullptr;

template <class Derived, class Base>
struct upcast_registration {
  upcast_registration() noexcept {
    entry = {
        type_key<Derived>, type_key<Base>,
        [](void* object) -> void* { return static_cast<Base*>(static_cast<Derived*>(object)); },
        first_upcast};
    first_upcast = &entry;
  }
  upcast entry;
};
template <class Derived, class Base>
inline upcast_registration<Derived, Base> registered_upcast{};

/// Wherever it is compiled in, a Derived can be used as a Base.
template <class Derived, class Base>
void expose_base() noexcept {
  if constexpr (!std::is_same_v<std::remove_const_t<Derived>, std::remove_const_t<Base>>) {
    static_cast<void>(&registered_upcast<Derived, Base>);
  }
}

/// `object`, which was made as `made`, as a `wanted`, over several steps if need be; null if the
/// program has no such conversion, or several that lead to different parts of the object.
[[nodiscard]] inline void* as_type(void* object, type_id made, type_id wanted,
                                   int steps = 16) noexcept {
  if (made == wanted) return object;
  void* found = nullptr;
  for (const upcast* u = first_upcast; u && steps > 0; u = u->next) {
    if (!(u->derived == made)) continue;
    void* const at = as_type(u->convert(object), u->base, wanted, steps - 1);
    if (u->base == wanted) return at;  // the program says so itself
    if (at && found && at != found) return nullptr;
    if (at) found = at;
  }
  return found;
}

}  // namespace weft::detail
