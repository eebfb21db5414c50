// SPDX-License-Identifier: BSL-1.0
// The name of a function as all compilers find it, computed once when the program runs. Only
// weft/rpc/identity.hpp includes this.
#pragma once

#include <weft/linkage.hpp>
#include <weft/rpc/detail/printed_name.hpp>

#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace weft::detail {

struct spelling {
  std::string text;
  bool portable = true;  ///< else `text` is what this compiler prints
};

// Their names contain those of F and T, behind the same characters everywhere.
template <auto F>
struct function_tag {};
template <class T>
struct class_tag {};

/// Reads names out of mangled ones (rpc/detail/mangled_name.hpp); empty: there is none.
std::string function_in_tag(std::string_view mangled);
std::string class_in_tag(std::string_view mangled);

template <auto F>
std::string spelled_function() {
  return function_in_tag(typeid(function_tag<F>).name());
}
template <class T>
std::string spelled_class() {
  return class_in_tag(typeid(class_tag<T>).name());
}

template <auto F, class Type = std::remove_cv_t<decltype(F)>>
struct spelled_name {
  static spelling find() { return {spelled_function<F>()}; }
};
template <auto F, class Named>
  requires requires { Named::function; }
struct spelled_name<F, Named> {
  static spelling find() { return {std::string(Named::name())}; }
};
// The name of the class, "::", and its last part again, without template arguments.
template <auto F, class T, class... Args>
struct spelled_name<F, constructor_t<T, Args...>> {
  static spelling find() {
    const std::string scope = spelled_class<T>();
    if (scope.empty()) return {};
    return {scope + "::" + std::string(last_part(scope))};
  }
};

/// Never destroyed: a thread that outlives main may still say a name.
template <auto F>
const spelling& spelling_of() {
  static const spelling& found = *new spelling([] {
    spelling out = spelled_name<F>::find();
    if (out.text.empty()) out = {std::string(name_of<F>::value()), false};
    return out;
  }());
  return found;
}

}  // namespace weft::detail

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/rpc/impl/spelled_name.hpp>
#endif
