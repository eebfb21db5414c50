// SPDX-License-Identifier: BSL-1.0
// Variables of this process, as a launcher would set them.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

namespace weft::testing {

/// Takes away the `known` variables, sets those of `set`, and puts the known ones back.
class environment {
 public:
  environment(std::initializer_list<const char*> known,
              const std::map<std::string, std::string>& set) {
    for (const char* name : known) {
      const char* const value = std::getenv(name);
      before_[name] = value ? std::optional<std::string>(value) : std::nullopt;
      ::unsetenv(name);
    }
    for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
  }
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;
  ~environment() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace weft::testing
