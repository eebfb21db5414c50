// SPDX-License-Identifier: BSL-1.0
// A room that is on no list.
#pragma once
