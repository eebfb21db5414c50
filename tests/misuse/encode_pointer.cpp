// expect: weft: cannot send a pointer: another process cannot follow it
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/codec.hpp>

struct node {
  int value;
  std::vector<node*> children;
};

void write(weft::writer& w, const node& n) { weft::encode(w, n); }
