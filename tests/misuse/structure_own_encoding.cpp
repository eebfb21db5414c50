// expect: weft: .* has its own weft_encode, so weft cannot see its structure. name its format
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/structure.hpp>

struct shape {
  int sides;
};
void weft_encode(weft::writer&, const shape&);

int main() { return static_cast<int>(weft::structure_of<shape>()); }
