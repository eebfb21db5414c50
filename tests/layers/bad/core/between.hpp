// SPDX-License-Identifier: BSL-1.0
// A comment is between.
#pragma once

// This one.
#include <weft/core/low.hpp>
