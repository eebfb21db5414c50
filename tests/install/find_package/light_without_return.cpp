// SPDX-License-Identifier: BSL-1.0
// Reads like a coroutine, but a light<void> function has to `return {};`.
#include <weft/rpc/invocation.hpp>

int counted = 0;

weft::light<void> count();
weft::light<void> count() { ++counted; }

int main() {
  count();
  return counted;
}
