// SPDX-License-Identifier: BSL-1.0
#pragma once
// The purpose comes too late.
