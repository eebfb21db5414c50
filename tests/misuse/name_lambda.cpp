// expect: weft: .* give .*address .*\(&f\), or weft::named
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/identity.hpp>

int main() {
  return static_cast<int>(weft::function_id<[](int x) { return x; }>());
}
