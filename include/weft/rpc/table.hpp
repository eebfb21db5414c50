// SPDX-License-Identifier: BSL-1.0
// The functions compiled into this program: weft's only process-wide state (but for whether the
// code of tensors is, wire/tensor.hpp), constant once main begins. Instantiating `call<&f>` or
// `expose<&f>` anywhere puts f into it.
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/function.hpp>

#include <asio/awaitable.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft {

class invocation;

/// One callable function; a list node with static lifetime.
struct function_entry {
  std::string_view name;
  std::uint64_t id = 0;
  std::uint32_t signature = 0;
  run_style style = run_style::pool;
  void (*run)(invocation&) = nullptr;                     ///< pool and light
  asio::awaitable<void> (*start)(invocation&) = nullptr;  ///< coroutine
  function_entry* next = nullptr;
};

namespace detail {

inline constinit function_entry* first_function = nullptr;

/// Adds Fn's entry to the list before main.
template <class Fn, template <class> class Thunk>
struct registration {
  registration() noexcept {
    entry.name = Fn::name();
    entry.id = Fn::id;
    entry.signature = Fn::signature;
    entry.style = Fn::style;
    if constexpr (Fn::style == run_style::coroutine) {
      entry.start = &Thunk<Fn>::start;
    } else {
      entry.run = &Thunk<Fn>::run;
    }
    entry.next = first_function;
    first_function = &entry;
  }
  function_entry entry;
};

}  // namespace detail

/// A sorted view of the list, one per worker.
class function_table {
 public:
  function_table() {
    for (const function_entry* f = detail::first_function; f; f = f->next) {
      functions_.push_back(f);
    }
    std::sort(functions_.begin(), functions_.end(), before);
  }

  /// The function, or unknown_function, or signature_mismatch with both signatures.
  [[nodiscard]] expected<const function_entry*> find(std::uint64_t id,
                                                     std::uint32_t signature) const {
    function_entry wanted;
    wanted.id = id;
    wanted.signature = signature;
    const auto at = std::lower_bound(functions_.begin(), functions_.end(), &wanted, before);
    if (at != functions_.end() && (*at)->id == id) {
      if ((*at)->signature == signature) return *at;
    }
    const auto near = std::find_if(functions_.begin(), functions_.end(),
                                   [id](const function_entry* f) { return f->id == id; });
    if (near == functions_.end()) {
      return tl::unexpected(
          error(errc::unknown_function,
                "this program does not contain a function with id " + std::to_string(id),
                execution::not_executed, origin::remote_runtime));
    }
    return tl::unexpected(error(errc::signature_mismatch,
                                "'" + std::string((*near)->name) + "' has signature " +
                                    std::to_string((*near)->signature) +
                                    " here, the caller expects " + std::to_string(signature),
                                execution::not_executed, origin::remote_runtime));
  }
  [[nodiscard]] std::size_t size() const noexcept { return functions_.size(); }

 private:
  static bool before(const function_entry* a, const function_entry* b) noexcept {
    return a->id != b->id ? a->id < b->id : a->signature < b->signature;
  }
  std::vector<const function_entry*> functions_;
};

}  // namespace weft
