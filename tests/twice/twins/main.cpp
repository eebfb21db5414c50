// SPDX-License-Identifier: BSL-1.0
// Two files with a static `prepare` each: exits with 0 if the table is made, with 3 after printing
// why it is not. With TWINS_STATIC_PREPARE undefined, both contain only what they share.
#include "shared.hpp"

#include <iostream>

void other_file();

#ifdef TWINS_STATIC_PREPARE
static double prepare(double x) { return x + 1; }
#endif

int main() {
  twins::expose_shared();
  other_file();
#ifdef TWINS_STATIC_PREPARE
  weft::expose<&prepare>();
#endif
  try {
    const weft::function_table table;
    std::cout << table.size() << " functions\n";
  } catch (const weft::rpc_error& e) {
    std::cout << e.what() << '\n';
    return 3;
  }
}
