// SPDX-License-Identifier: BSL-1.0
// Machinery before, and more of it than, the interface.
#pragma once

namespace weft::detail {
class known;  // a forward declaration, which does not count

template <class T>
struct holder {
  T value;
};
inline int f0() { return 0; }
}  // namespace weft::detail

namespace weft {
namespace detail {
inline int f1() { return 1; }
inline int f2() { return 2; }
inline int f3() { return 3; }
inline int f4() { return 4; }
inline int f5() { return 5; }
inline int f6() { return 6; }
inline int f7() { return 7; }
inline int f8() { return 8; }
}  // namespace detail
// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...

// ...
/// The first that is public.
int first();
}  // namespace weft
