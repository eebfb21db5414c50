// SPDX-License-Identifier: BSL-1.0
// The functions compiled into this program: weft's only process-wide state (but for whether the
// code of tensors is, wire/tensor.hpp), constant once main begins. Instantiating `call<&f>` or
// `expose<&f>` anywhere puts f into it, once per program; a function that each source file has for
// itself (static, or made of something static), once per source file.
#pragma once

#include <weft/rpc/function.hpp>
#include <weft/rpc/fwd.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <string_view>

namespace weft {

class invocation;

/// One callable function; a list node with static lifetime.
struct function_entry {
  std::string_view name;
  std::uint64_t id = 0;
  std::uint32_t signature = 0;
  function_style style = function_style::plain;
  bool portable = true;                    ///< `name` is what every compiler finds
  const char* file = "";                   ///< a source file that contains it
  const void* constructed = nullptr;       ///< of a constructor: a key of its class in this program
  std::uint32_t arguments_in_full = 0;     ///< ... and a hash of what it takes, with full names
  void (*execute)(invocation&) = nullptr;  ///< plain and immediate
  asio::awaitable<void> (*start)(invocation&) = nullptr;  ///< coroutine
  function_entry* next = nullptr;
};

namespace detail {

inline constinit function_entry* first_function = nullptr;

template <class T>
inline constexpr char class_key = 0;

}  // namespace detail
}  // namespace weft
