// SPDX-License-Identifier: BSL-1.0
// The functions compiled into this program: weft's only process-wide state (but for whether the
// code of tensors is, wire/tensor.hpp), constant once main begins. Instantiating `call<&f>` or
// `expose<&f>` anywhere puts f into it, once per program; a function that each source file has for
// itself (static, or made of something static), once per source file.
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/type_key.hpp>
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
  const char* const* file = nullptr;       ///< a source file that contains it, once main begins
  type_id constructed;                     ///< of a constructor: its class
  std::uint32_t arguments_in_full = 0;     ///< ... and a hash of what it takes, with full names
  type_id form;                            ///< what was registered, which the function is part of
  const void* code = nullptr;              ///< its address, if it is no member of a class
  std::uint64_t layout = 0;                ///< of its class, if it is one: size and alignment
  void (*execute)(invocation&) = nullptr;  ///< plain and immediate
  asio::awaitable<void> (*start)(invocation&) = nullptr;  ///< coroutine
  function_entry* next = nullptr;
};

namespace detail {

WEFT_PROCESS_WIDE inline constinit function_entry* first_function = nullptr;

}  // namespace detail
}  // namespace weft
