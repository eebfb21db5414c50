// SPDX-License-Identifier: BSL-1.0
// The list of the functions that are compiled into this program. It is process-wide, and constant
// once main begins, except that dlopen adds a library's functions. Instantiating `call<&f>` or
// `expose<&f>` anywhere puts f into it, once per program. If each source file has a function for
// itself (static, or made of something static), it is in the list once per source file.
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/type_key.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/rpc/function.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/wire/given_memory.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <string_view>

namespace weft {

class invocation;

namespace detail {
/// Memory for the tensors of a request, of which `head` has come; null: none. Thread that reads.
using placer = intrusive_ptr<given_memory> (*)(const frame& head) noexcept;
/// That of functions with these arguments.
template <class Arguments>
inline constexpr placer placer_of = nullptr;
}  // namespace detail

/// One callable function; a list node with static lifetime.
struct function_entry {
  std::string_view name;
  std::uint64_t id = 0;
  std::uint32_t signature = 0;
  function_style style = function_style::plain;
  bool portable = true;                    ///< every compiler finds this `name`
  const char* const* file = nullptr;       ///< a source file that contains it, once main begins
  type_id constructed;                     ///< of a constructor: its class
  std::uint32_t arguments_in_full = 0;     ///< ... and a hash of its parameters, with full names
  type_id form;                            ///< the type that was registered for the function
  const void* code = nullptr;              ///< its address, if it is no member of a class
  std::uint64_t layout = 0;                ///< size and alignment of its class, if it has one
  void (*execute)(invocation&) = nullptr;  ///< plain and immediate
  asio::awaitable<void> (*start)(invocation&) = nullptr;  ///< coroutine
  /// Memory for the tensors of a request; of a function with parameters `into<T, place>`.
  detail::placer place = nullptr;
  function_entry* next = nullptr;
};

namespace detail {

WEFT_PROCESS_WIDE inline constinit function_entry* first_function = nullptr;

}  // namespace detail
}  // namespace weft
