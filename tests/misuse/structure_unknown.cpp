// expect: weft: .* cannot be sent: it is neither a plain aggregate, nor a type that weft knows
// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/structure.hpp>

#include <vector>

class account {
 public:
  explicit account(int balance) : balance_(balance) {}
  int balance() const { return balance_; }

 private:
  int balance_;
};

int main() { return static_cast<int>(weft::structure_of<std::vector<account>>()); }
