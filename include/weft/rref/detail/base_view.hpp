// SPDX-License-Identifier: BSL-1.0
// Calls of a base class's members on an object of a derived class: where the object is, only the
// class it was made as is known, so each such call leaves a conversion in the program.
#pragma once

#include <weft/rpc/call_target.hpp>
#include <weft/rpc/function.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>

namespace weft::detail {

/// A list node with static lifetime, like function_entry.
struct base_view {
  std::uint64_t function = 0;     ///< the id of what is called
  const void* derived = nullptr;  ///< type_key of the object's class
  const void* base = nullptr;     ///< type_key of the class that the function takes
  void* (*convert)(void*) = nullptr;
  const base_view* next = nullptr;
};
inline constinit const base_view* first_base_view = nullptr;

template <class T, class Base, auto Function>
struct base_view_registration {
  base_view_registration() noexcept {
    entry = {function_id<Function>(), type_key<T>, type_key<Base>,
             [](void* object) -> void* { return static_cast<Base*>(static_cast<T*>(object)); },
             first_base_view};
    first_base_view = &entry;
  }
  base_view entry;
};
template <class T, class Base, auto Function>
inline base_view_registration<T, Base, Function> registered_view{};

/// Wherever it is compiled in, M can be called on a T.
template <auto M, class T>
void expose_on() noexcept {
  using object = typename function<M>::object;
  if constexpr (!std::is_same_v<std::remove_const_t<T>, std::remove_const_t<object>>) {
    static_cast<void>(&registered_view<T, object, M>);
  }
}

/// Turns the target into what the function takes, if the program has such a conversion.
inline void view_for(std::uint64_t function, call_target& target) {
  for (const base_view* v = first_base_view; v && target.object; v = v->next) {
    if (v->function != function || v->derived != target.type) continue;
    target.object = std::shared_ptr<void>(target.object, v->convert(target.object.get()));
    target.type = v->base;
    return;
  }
}

}  // namespace weft::detail
