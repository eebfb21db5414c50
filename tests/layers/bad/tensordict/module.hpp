// SPDX-License-Identifier: BSL-1.0
// The one that may have it.
#pragma once

#include <torch/nn/module.h>
