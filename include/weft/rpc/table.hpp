// SPDX-License-Identifier: BSL-1.0
// The functions of this program (rpc/function_entry.hpp) as a worker looks them up. If a caller
// could not tell two of them apart, a run refuses to begin.
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/function_entry.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

/// A sorted view of the list, one per worker. Constant: any thread.
///
///   const weft::function_table table;
///   auto f = table.find(function<&scale>::id(), function<&scale>::signature);
class function_table {
 public:
  /// Of this program. Throws rpc_error (ambiguous_function) if two of its functions cannot be told
  /// apart, or one has no name that every compiler finds.
  function_table() : function_table(detail::first_function) {}
  /// Of the list that begins with `first`.
  explicit function_table(const function_entry* first);

  /// The function; null if there is none.
  [[nodiscard]] const function_entry* known(std::uint64_t id,
                                            std::uint32_t signature) const noexcept;
  /// The function, or unknown_function, or signature_mismatch with both signatures.
  [[nodiscard]] expected<const function_entry*> find(std::uint64_t id,
                                                     std::uint32_t signature) const;
  [[nodiscard]] std::size_t size() const noexcept { return functions_.size(); }

 private:
  static bool before(const function_entry* a, const function_entry* b) noexcept;
  [[noreturn]] static void refuse_name(const function_entry& f);

  std::vector<const function_entry*> functions_;
};

}  // namespace weft

#include <weft/rpc/impl/table.hpp>
