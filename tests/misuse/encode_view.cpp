// expect: weft: cannot send a view \(std::string_view, std::span\): it owns nothing
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/codec.hpp>

void write(weft::writer& w, std::string_view text) { weft::encode(w, text); }
