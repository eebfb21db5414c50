// expect: context.*protected|protected.*context
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/worker.hpp>

asio::io_context& loop_of(weft::worker& me) { return me.context(); }
