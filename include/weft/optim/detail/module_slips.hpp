// SPDX-License-Identifier: BSL-1.0
// Slips in the use of weft/optim/module.hpp, for which there is a sentence.
#pragma once

#include <weft/optim/detail/module.hpp>
#include <weft/rref/rref.hpp>

namespace weft {
template <class T>
class exclusive;
}

namespace weft::optim {

namespace detail {

/// False, so that whoever writes it reads how it is done.
template <class Module>
inline constexpr bool is_a_reference_to_a_module = false;

template <class Module>
void refuse_module() {
  static_assert(is_a_reference_to_a_module<Module>,
                "weft: the functions of weft::optim take a weft::rref to the module, as "
                "p.make<net>(...) and me.share(std::shared_ptr<net>) give it.");
}
template <class Module>
void refuse_exclusive() {
  static_assert(is_a_reference_to_a_module<exclusive<Module>>,
                "weft: the functions of weft::optim take no weft::exclusive module, because an "
                "optimizer does not wait for its turn; make the module itself, p.make<net>(...).");
}

}  // namespace detail

template <class Module, class... Options>
auto parameters(const Module&, const Options&...) {
  detail::refuse_module<Module>();
}
template <class Module, class... Options>
auto parameters(const rref<exclusive<Module>>&, const Options&...) {
  detail::refuse_exclusive<Module>();
}
template <class Module, class... Options>
auto state_dict(const Module&, const Options&...) {
  detail::refuse_module<Module>();
}
template <class Module, class... Options>
auto state_dict(const rref<exclusive<Module>>&, const Options&...) {
  detail::refuse_exclusive<Module>();
}
template <class Module, class... Options>
auto load_state_dict(const Module&, const module_state&, const Options&...) {
  detail::refuse_module<Module>();
}
template <class Module, class... Options>
auto load_state_dict(const rref<exclusive<Module>>&, const module_state&, const Options&...) {
  detail::refuse_exclusive<Module>();
}

}  // namespace weft::optim
