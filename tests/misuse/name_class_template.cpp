// expect: weft: .*no name that all compilers agree on.*give it one: weft::named
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/identity.hpp>

template <class T>
struct box {
  T get();
};

int main() { return static_cast<int>(weft::function_id<&box<int>::get>); }
