// SPDX-License-Identifier: BSL-1.0
// The engine: what a process needs to live, behind the interfaces of the face (rpc/, rref/,
// autograd/). Only run.hpp, src.hpp, sim.hpp, sim/ and tests include it.
#pragma once

namespace weft {
namespace detail {}

namespace engine {

using namespace weft::detail;  // the house's own tools

class handshake;
class link;
class worker;

}  // namespace engine
}  // namespace weft
