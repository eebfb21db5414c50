// SPDX-License-Identifier: BSL-1.0
// How a function comes into the program's list, before main.
#pragma once

#include <weft/rpc/function_entry.hpp>

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
    if constexpr (requires { requires Fn::is_constructor; }) {
      entry.constructed = type_key<typename Fn::result>;
      entry.arguments_in_full = structure_in_full<typename Fn::arguments>();
    }
    if constexpr (Fn::style == function_style::coroutine) {
      entry.start = &Thunk<Fn>::start;
    } else {
      entry.execute = &Thunk<Fn>::execute;
    }
    entry.next = first_function;
    first_function = &entry;
  }
  function_entry entry;
};

}  // namespace weft::detail
