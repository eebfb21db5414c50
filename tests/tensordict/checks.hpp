// SPDX-License-Identifier: BSL-1.0
// What tests of tensordicts ask alike.
#pragma once

#include <weft/tensordict/tensordict.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <string>

namespace weft::testing {

/// The code of the tensordict_error that f throws, whose text has `names`.
template <class F>
tensordict_errc refused(const F& f, const std::string& names = {}) {
  try {
    static_cast<void>(f());
  } catch (const tensordict_error& e) {
    INFO(e.what());
    CHECK(std::string(e.what()).size() > 10);
    CHECK(std::string(e.what()).find(names) != std::string::npos);
    return e.code();
  }
  FAIL("not refused");
  return {};
}

/// Equal dtypes, sizes, values, names and text; entries may stand in another order.
inline void require_same(const tensordict& a, const tensordict& b) {
  CHECK(a.to_string() == b.to_string());
  CHECK(a.names() == b.names());
  const auto mine = a.leaves();
  REQUIRE(mine.size() == b.leaves().size());
  for (const auto& [key, t] : mine) {
    const at::Tensor& other = b.tensor(key);
    CHECK((t.scalar_type() == other.scalar_type()));
    CHECK(t.equal(other));
  }
}

}  // namespace weft::testing
