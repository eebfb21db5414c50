// SPDX-License-Identifier: BSL-1.0
// Puts macros of these names aside, as Qt and Windows define them, until macros_on.hpp: they name
// functions and variables here, in Asio and in libtorch. Included again and again: no `once`.
#pragma push_macro("min")
#pragma push_macro("max")
#pragma push_macro("slots")
#pragma push_macro("signals")
#pragma push_macro("emit")
#pragma push_macro("foreach")
#pragma push_macro("forever")
#undef min
#undef max
#undef slots
#undef signals
#undef emit
#undef foreach
#undef forever
