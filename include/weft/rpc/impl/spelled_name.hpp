// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/detail/spelled_name.hpp.
#pragma once

#include <weft/rpc/detail/mangled_name.hpp>
#include <weft/rpc/detail/spelled_name.hpp>

#include <string>
#include <string_view>

namespace weft::detail {

WEFT_DECL std::string function_in_tag(std::string_view mangled) {
  constexpr std::string_view opening = "N4weft6detail12function_tagIXadL_Z";
  if (!mangled.starts_with(opening)) return {};
  return mangled_name(mangled.substr(opening.size()),
                      {"weft", "weft::detail", "weft::detail::function_tag"})
      .function();
}
WEFT_DECL std::string class_in_tag(std::string_view mangled) {
  constexpr std::string_view opening = "N4weft6detail9class_tagI";
  if (!mangled.starts_with(opening)) return {};
  return mangled_name(mangled.substr(opening.size()),
                      {"weft", "weft::detail", "weft::detail::class_tag"})
      .type_name();
}

}  // namespace weft::detail
