// SPDX-License-Identifier: BSL-1.0
// A lower room.
#pragma once

#include <weft/engine/fwd.hpp>
#include <weft/engine/worker/worker.hpp>
#include <weft/engine/helper/helper.hpp>
#include <weft/engine/run.hpp>
