// SPDX-License-Identifier: BSL-1.0
// The macros that macros_off.hpp has put aside are there again.
#pragma pop_macro("forever")
#pragma pop_macro("foreach")
#pragma pop_macro("emit")
#pragma pop_macro("signals")
#pragma pop_macro("slots")
#pragma pop_macro("max")
#pragma pop_macro("min")
