// SPDX-License-Identifier: BSL-1.0
// Errors of tensordicts.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace weft {

/// What is wrong with an operation on a tensordict.
enum class tensordict_errc : std::uint8_t {
  no_key,      ///< there is no such entry
  key_exists,  ///< two entries would get one key
  kind,        ///< a tensor where a tensordict is needed, for example
  shape,       ///< sizes do not fit the batch size, or one another
  dimension,   ///< a dimension that the batch size does not have
  index,       ///< an index that does not fit the batch size
  locked,      ///< a locked tensordict gets no new entries
  history,     ///< a tensor that requires gradients where values alone are kept
  format,      ///< a file, or JSON, that is not what it should be
  file,        ///< the system refused to open, read or write a file
};

/// Thrown by tensordicts. The text names the key, and the shapes of both sides. If libtorch refuses
/// what it is given (dtypes, for example), its own c10::Error is thrown.
class tensordict_error : public std::runtime_error {
 public:
  tensordict_error(tensordict_errc code, const std::string& text)
      : std::runtime_error(text), code_(code) {}
  [[nodiscard]] tensordict_errc code() const noexcept { return code_; }

 private:
  tensordict_errc code_;
};

}  // namespace weft
