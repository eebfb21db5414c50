// expect: weft: .* has its own weft_encode, but no name that all compilers agree on. name its format
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/structure.hpp>

template <int Sides>
struct shape {
  double length;
};
template <int Sides>
void weft_encode(weft::writer&, const shape<Sides>&);
template <int Sides>
shape<Sides> weft_decode(weft::reader&, std::type_identity<shape<Sides>>);

int main() { return static_cast<int>(weft::structure_of<shape<3>>()); }
