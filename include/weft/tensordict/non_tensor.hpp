// SPDX-License-Identifier: BSL-1.0
// What a tensordict holds beside tensors: a JSON value.
//
//   td.set("task", weft::non_tensor("pick up the cup"));
//   std::string task = td.data("task").as_string();
#pragma once

#include <weft/tensordict/error.hpp>

#include <nlohmann/json_fwd.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace weft {

/// Python's NonTensorData: null, a bool, an int64 or uint64, a double, a string (UTF-8), or lists
/// and dictionaries of these. Each element of the batch has this value: indexing keeps it, stacking
/// makes a lazy_stack of such values. Copies share the value, which is never changed.
class non_tensor {
 public:
  non_tensor();  ///< null
  explicit non_tensor(const nlohmann::ordered_json& value);
  explicit non_tensor(const char* text);
  explicit non_tensor(std::string_view text);
  explicit non_tensor(const std::string& text) : non_tensor(std::string_view(text)) {}
  template <std::same_as<bool> Bool>
  explicit non_tensor(Bool value) : non_tensor(from_bool(value)) {}
  template <std::integral Int>
    requires(!std::same_as<Int, bool>)
  explicit non_tensor(Int value)
      : non_tensor(std::is_signed_v<Int> ? from_int(static_cast<std::int64_t>(value))
                                         : from_uint(static_cast<std::uint64_t>(value))) {}
  template <std::floating_point Real>
  explicit non_tensor(Real value) : non_tensor(from_double(static_cast<double>(value))) {}
  /// `text` is JSON, in which NaN, Infinity and -Infinity are numbers, as Python writes them.
  /// Throws `format`.
  [[nodiscard]] static non_tensor parse(std::string_view text);

  /// Include <nlohmann/json.hpp> to use it.
  [[nodiscard]] const nlohmann::ordered_json& json() const noexcept { return *value_; }
  /// As JSON, in one line; `parse` reads it.
  [[nodiscard]] std::string to_string() const;
  // Throw `kind` if it is something else. An integer is also a double.
  [[nodiscard]] bool as_bool() const;
  [[nodiscard]] std::int64_t as_int() const;
  [[nodiscard]] std::uint64_t as_uint() const;
  [[nodiscard]] double as_double() const;
  [[nodiscard]] const std::string& as_string() const;

  friend bool operator==(const non_tensor& a, const non_tensor& b) { return a.equals(b); }

 private:
  static non_tensor from_bool(bool value);
  static non_tensor from_int(std::int64_t value);
  static non_tensor from_uint(std::uint64_t value);
  static non_tensor from_double(double value);
  [[nodiscard]] bool equals(const non_tensor& other) const;
  std::shared_ptr<const nlohmann::ordered_json> value_;
};

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/tensordict/impl/non_tensor_once.hpp>
#endif
