// expect: weft: cannot send .*an enum without an underlying type
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/codec.hpp>

enum colour { red, green };

void write(weft::writer& w, const colour& c) { weft::encode(w, c); }
