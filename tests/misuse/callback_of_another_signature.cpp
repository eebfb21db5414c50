// expect: weft: this function does not take the arguments of the callback's signature
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/callback.hpp>

#include <string>

auto use(weft::worker& me) {
  return weft::callback<void(int)>(me, [](std::string) {});
}
