// SPDX-License-Identifier: BSL-1.0
// The engine: what a process needs to live, behind the interfaces of the face (rpc/, rref/,
// autograd/). Only run.hpp, src.hpp, sim.hpp, sim/ and tests include it.
//
// Its rooms, each with a file of its name in which to begin; those below include those above, never
// the other way round:
//
//   launch/      starts and watches the processes of one machine
//   shutdown/    when and how a run ends: pure protocol
//   helper/      who writes and reads a worker's links, and when
//   rendezvous/  how workers find each other
//   serving/     a request, from its arrival to its reply
//   link/        everything about one peer: connection, handshake, flow control, calls
//   worker/      the worker, its threads and its run
//   services/    references and gradients
//
// run.hpp and join.hpp stand above them: the doors for weft::run and weft::join.
#pragma once

namespace weft {
namespace detail {}

namespace engine {

using namespace weft::detail;  // the house's own tools

class handshake;
class helper;
class link;
class link_host;
class request_source;
class served_request;
class transport_set;
class worker;

}  // namespace engine
}  // namespace weft
