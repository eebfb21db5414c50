// SPDX-License-Identifier: BSL-1.0
// How a function comes into the program's list, before main.
#pragma once

#include <weft/rpc/function_entry.hpp>

#include <cstdint>
#include <type_traits>

namespace weft::detail {

/// The source file that is compiled, each in its own; until it says so (weft/weft.hpp), that of the
/// precompiled header in which this stands.
[[maybe_unused]] static const char* this_file = __BASE_FILE__;

/// The address of the function that Fn calls, if it is no member of a class.
template <class Fn>
[[nodiscard]] const void* code_of() noexcept {
  if constexpr (requires { *Fn::pointer; }) {
    return reinterpret_cast<const void*>(Fn::pointer);
  } else {
    return nullptr;
  }
}

template <class C>
[[nodiscard]] constexpr std::uint64_t size_and_alignment(std::type_identity<C>) noexcept {
  return std::uint64_t{sizeof(C)} << 16 | alignof(C);
}
template <class C, class Member>
[[nodiscard]] std::type_identity<C> class_of(Member C::*) noexcept;

/// Adds Fn's entry to the list before main. Where several source files contain one function, the
/// linker keeps the `file` of one of them, whichever.
template <class Fn, template <class> class Thunk>
struct registration {
  explicit registration(const char* const* file) noexcept {
    entry.name = Fn::name();
    entry.id = Fn::id();
    entry.signature = Fn::signature;
    entry.style = Fn::style;
    entry.portable = Fn::has_portable_name();
    entry.file = file;
    entry.form = type_key<Fn>;
    entry.code = code_of<Fn>();
    if constexpr (requires { class_of(Fn::pointer); }) {
      entry.layout = size_and_alignment(decltype(class_of(Fn::pointer))());
    }
    if constexpr (requires { requires Fn::is_constructor; }) {
      entry.constructed = type_key<typename Fn::result>;
      entry.arguments_in_full = structure_in_full<typename Fn::arguments>();
      entry.layout = size_and_alignment(std::type_identity<typename Fn::result>());
    }
    if constexpr (Fn::style == function_style::coroutine) {
      entry.start = &Thunk<Fn>::start;
    } else {
      entry.execute = &Thunk<Fn>::execute;
    }
    entry.place = placer_of<typename Fn::arguments>;
    entry.next = first_function;
    first_function = &entry;
  }
  function_entry entry;
};

}  // namespace weft::detail
