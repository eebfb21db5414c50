// SPDX-License-Identifier: BSL-1.0
// Takes in what only module.hpp may.
#pragma once

#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/nn/module.h>
