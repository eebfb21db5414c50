// expect: (sample.*, double ?\*>': weft: .*cannot be sent|weft: .*cannot be sent: double ?\*, )
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

#include <map>
#include <string>

struct sample {
  int id;
  double* values;
};

int f(std::map<std::string, sample> all);

static_assert(weft::detail::check_declaration<&f>());
