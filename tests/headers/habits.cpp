// SPDX-License-Identifier: BSL-1.0
// Macros that Qt and Windows define, in front of all that a user includes; with
// WEFT_SEPARATE_COMPILATION the engine, too.
#define slots
#define signals public
#define emit
#define foreach(variable, all) for (variable : all)
#define forever                                                                                    \
  again:
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))

#include <weft/autograd/checkpoint.hpp>
#include <weft/optim/distributed.hpp>
#include <weft/optim/lbfgs.hpp>
#include <weft/optim/lr_scheduler.hpp>
#include <weft/optim/module.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>
#include <weft/weft.hpp>
#if defined(WEFT_SEPARATE_COMPILATION)
#include <weft/sim.hpp>
#include <weft/src.hpp>
#endif

#if !defined(slots) || !defined(signals) || !defined(emit) || !defined(foreach) ||                 \
    !defined(forever) || !defined(min) || !defined(max)
#error "a macro of the user's is gone"
#endif
static_assert(max(1, min(2, 3)) == 2);
