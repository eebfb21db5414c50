// SPDX-License-Identifier: BSL-1.0
// Uses a header of weft that needs no libtorch.
#include <weft/core/error.hpp>
#include <weft/version.hpp>

int main() {
  std::error_code code = make_error_code(weft::errc::closed);
  return !code.message().empty() && WEFT_VERSION >= 100 ? 0 : 1;
}
