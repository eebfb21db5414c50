// SPDX-License-Identifier: BSL-1.0
// Peers that are Python programs.
#pragma once

#include "../process.hpp"

#include <string>

namespace bench::python {

/// Runs `./dev python bench/peers/FILE`, which prints its figures as JSON. Throws if it fails.
figures run(const std::string& file);

}  // namespace bench::python
