// SPDX-License-Identifier: BSL-1.0
// Only the face.
#pragma once

#include <weft/engine/work.hpp>
#include <weft/optim/step.hpp>
