// expect: weft: to_here needs a T that can be copied and sent.* call its members instead
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

#include <memory>

struct model {
  std::unique_ptr<int> weight;
};

auto use(weft::rref<model> r) { return r.to_here(); }
