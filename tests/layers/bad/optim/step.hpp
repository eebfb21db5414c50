// SPDX-License-Identifier: BSL-1.0
// Includes the engine.
#pragma once

#include <weft/engine/work.hpp>
#include <weft/rpc/high.hpp>
