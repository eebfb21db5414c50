// expect: weft: .* has weft_encode or weft_decode, but not both, .* next to the type T. void weft_encode
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/codec.hpp>

struct user {
  std::string name, password;
};
void weft_encode(weft::writer& w, const user& u) { weft::encode(w, u.name); }
user weft_decode(weft::reader&, user*);

void write(weft::writer& w, const std::vector<user>& all) { weft::encode(w, all); }
