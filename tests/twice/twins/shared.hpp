// SPDX-License-Identifier: BSL-1.0
// What both translation units of each program here contain.
#pragma once

#ifdef TWINS_WHOLE_FACE
#include <weft/weft.hpp>
#endif
#include <weft/rpc/expose.hpp>
#include <weft/rpc/table.hpp>

namespace twins {

inline double shared(double x) { return x; }
template <class T>
T generic(T x) {
  return x;
}
struct counter {
  int add(int by) { return value += by; }
  int value = 0;
};

inline void expose_shared() {
  weft::expose<&shared>();
  weft::expose<&generic<int>>();
  weft::expose<&generic<double>>();
  weft::expose<&counter::add>();
  weft::expose<weft::constructor<counter>>();
  weft::expose<weft::named<"twins.shared", &shared>>();
}

}  // namespace twins
