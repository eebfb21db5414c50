// SPDX-License-Identifier: BSL-1.0
// How a function comes into the program's list, before main.
#pragma once

#include <weft/rpc/function_entry.hpp>

namespace weft::detail {

/// Adds Fn's entry to the list before main. `file` is __BASE_FILE__: where several source files
/// contain one function, the linker keeps one of them, whichever.
template <class Fn, template <class> class Thunk>
struct registration {
  explicit registration(const char* file) noexcept {
    entry.name = Fn::name();
    entry.id = Fn::id();
    entry.signature = Fn::signature;
    entry.style = Fn::style;
    entry.portable = Fn::has_portable_name();
    entry.file = file;
    if constexpr (requires { requires Fn::is_constructor; }) {
      entry.constructed = &class_key<typename Fn::result>;
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
