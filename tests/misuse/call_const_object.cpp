// expect: weft: .*(is neither a member of|is a member of T, or takes T&)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

struct stage {
  int width;
};
struct other_stage {
  int width;
};
int width_of(const stage& s);

asio::awaitable<int> use(weft::rref<other_stage> r) { co_return co_await r.call<&width_of>(); }
