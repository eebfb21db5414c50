// SPDX-License-Identifier: BSL-1.0
// A folder that nobody has given a floor.
#pragma once
