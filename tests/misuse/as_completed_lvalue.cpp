// expect: weft: as_completed moves the results out.*as_completed\(std::move\(futures\)\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/core/gather.hpp>

void use(std::vector<weft::future<int>> all) { auto arriving = weft::as_completed(all); }
