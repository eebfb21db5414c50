// SPDX-License-Identifier: BSL-1.0
// Has all of libtorch.
#pragma once

#include <weft/core/low.hpp>
#include <torch/torch.h>
