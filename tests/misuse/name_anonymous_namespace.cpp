// expect: weft: .* is no name that all compilers agree on|weft: this function has no name that all
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/identity.hpp>

namespace {
int hidden(int x) { return x; }
}  // namespace

int main() { return static_cast<int>(weft::function_id<&hidden>()); }
