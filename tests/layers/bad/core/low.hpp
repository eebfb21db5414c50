// SPDX-License-Identifier: BSL-1.0
// Includes what is higher.
#pragma once

#include <weft/rpc/high.hpp>
#include <ATen/ATen.h>
