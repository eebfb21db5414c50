// expect: weft: .*(no name that all compilers agree on|is no name).*cannot be published or looked up
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/published.hpp>

namespace {
struct model {};
}  // namespace

void use(weft::worker& me) { me.publish("model", me.share(model())); }
