// expect: weft: cannot send .*it is not an aggregate and has no codec. provide weft_encode
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/codec.hpp>

class account {
 public:
  int balance() const { return balance_; }

 private:
  int balance_ = 0;
};

void write(weft::writer& w, const std::map<int, account>& all) { weft::encode(w, all); }
