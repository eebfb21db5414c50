// SPDX-License-Identifier: BSL-1.0
// The main.cpp of the README's CMake lines: weft's identity, and a tensor.
#include <weft/rpc/identity.hpp>

#include <ATen/ATen.h>

int twice(int x);
int twice(int x) { return 2 * x; }

int main() {
  const bool named = weft::function_name<&twice>() == "twice";
  return named && at::ones({3}).sum().item<int>() == 3 ? 0 : 1;
}
