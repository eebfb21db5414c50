// expect: weft: .*parameter.* a view.*does not own its data. take std::string
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

// By name, as libtorch is not needed to refuse it.
namespace c10 {
template <class T>
class ArrayRef;
}  // namespace c10

int f(c10::ArrayRef<long> sizes);

static_assert(weft::detail::check_declaration<&f>());
