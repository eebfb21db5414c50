// SPDX-License-Identifier: BSL-1.0
// Includes libtorch.
#pragma once

#include <weft/core/low.hpp>
#include <c10/core/Device.h>
