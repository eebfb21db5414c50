// SPDX-License-Identifier: BSL-1.0
// A type as a value that may cross from one shared library to another.
#pragma once

#include <cstring>
#include <typeinfo>

namespace weft {

/// Equal for equal types, also where each shared library has its own description of a type, for
/// being hidden. A default-constructed one is that of no type.
class type_id {
 public:
  constexpr type_id() noexcept = default;
  constexpr explicit type_id(const std::type_info& of) noexcept : type_(&of) {}

  [[nodiscard]] explicit operator bool() const noexcept { return type_ != nullptr; }
  [[nodiscard]] friend bool operator==(type_id a, type_id b) noexcept {
    if (a.type_ == b.type_) return true;
    return a.type_ && b.type_ && *a.type_ == *b.type_ && !one_per_file(a.type_->name());
  }

 private:
  /// Types of one name that are several: Clang's names do not tell.
  [[nodiscard]] static bool one_per_file(const char* name) noexcept {
    return std::strstr(name, "_GLOBAL__N_") ||  // in an anonymous namespace
           std::strstr(name, "$_") ||           // a lambda
           std::strstr(name, "ZL");             // in a static function
  }

  const std::type_info* type_ = nullptr;
};

/// The key of T, which may be const.
template <class T>
inline constexpr type_id type_key{typeid(T*)};

}  // namespace weft
