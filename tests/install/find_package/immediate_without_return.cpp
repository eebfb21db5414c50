// SPDX-License-Identifier: BSL-1.0
// Reads like a coroutine, but an immediate<void> function has to `return {};`.
#include <weft/rpc/immediate.hpp>

int counted = 0;

weft::immediate<void> count();
weft::immediate<void> count() { ++counted; }

int main() {
  count();
  return counted;
}
