// SPDX-License-Identifier: BSL-1.0
#pragma once
// The same model trained in this one process, without weft: what the distributed run is compared
// with.

#include "settings.hpp"

namespace digits {

// Trains as `how` says, reports like the distributed run, and returns the test accuracy, 0..1.
// Throws data_error and output_error.
double train_local(const settings& how);

}  // namespace digits
