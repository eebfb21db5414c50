// SPDX-License-Identifier: BSL-1.0
// The services that every worker of `weft::run` has.
#pragma once

#include <weft/autograd/context.hpp>
#include <weft/autograd/service.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/service.hpp>
