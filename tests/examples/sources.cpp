// SPDX-License-Identifier: BSL-1.0
// The parts of the example that are tested here, compiled into the test: no libtorch, no plotting
// library. NOLINTBEGIN(bugprone-suspicious-include)
#include "../../examples/train_digits/console.cpp"
#include "../../examples/train_digits/csv.cpp"
#include "../../examples/train_digits/records.cpp"
// NOLINTEND(bugprone-suspicious-include)
