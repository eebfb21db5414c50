// expect: weft: publish takes a weft::rref; share the object first: me\.publish\(name, me\.share\(object\)\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/published.hpp>

#include <memory>

struct model {};

void use(weft::worker& me) { me.publish("model", std::make_shared<model>()); }
