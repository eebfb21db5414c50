// SPDX-License-Identifier: BSL-1.0
// The version of weft as one integer, major * 10000 + minor * 100 + patch, and as text.
#pragma once

#define WEFT_VERSION 100
#define WEFT_VERSION_STRING "0.1.0"
#define WEFT_VERSION_NAME v0_1_0
