// SPDX-License-Identifier: BSL-1.0
// Face and engine.
#pragma once

#include <weft/engine/work.hpp>
