// SPDX-License-Identifier: BSL-1.0
// Keys of tensordicts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// The names that lead from a tensordict to one of its entries, from the outside in.
using key_path = std::vector<std::string>;

/// A key, or the keys that lead into nested tensordicts, as an argument. Looks at its strings only:
/// they must live as long as it does.
///
///   td.get("action");  td.get({"next", "reward"});  td.get(weft::path<"next", "reward">);
class nested_key {
 public:
  nested_key(const char* one) noexcept : one_(one), size_(1) {}
  nested_key(std::string_view one) noexcept : one_(one), size_(1) {}
  nested_key(const std::string& one) noexcept : one_(one), size_(1) {}
  nested_key(std::initializer_list<std::string_view> names) noexcept
      : list_(names), size_(names.size()) {}
  nested_key(std::span<const std::string_view> names) noexcept
      : views_(names.data()), size_(names.size()) {}
  nested_key(const key_path& names) noexcept : strings_(names.data()), size_(names.size()) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::string_view operator[](std::size_t i) const noexcept {
    if (list_.size() > 0) return list_.begin()[i];
    return views_ ? views_[i] : strings_ ? std::string_view(strings_[i]) : one_;
  }

 private:
  std::string_view one_;
  std::initializer_list<std::string_view> list_;
  const std::string_view* views_ = nullptr;
  const std::string* strings_ = nullptr;
  std::size_t size_;
};

namespace detail {

/// A string as a template argument.
template <std::size_t N>
struct key_text {
  consteval key_text(const char (&text)[N]) { std::copy_n(text, N, characters); }
  [[nodiscard]] constexpr std::string_view view() const { return {characters, N - 1}; }
  char characters[N];
};
template <key_text... Names>
inline constexpr std::array<std::string_view, sizeof...(Names)> path_names{Names.view()...};

}  // namespace detail

/// Names that are known when the program is compiled.
template <detail::key_text... Names>
  requires(sizeof...(Names) > 0)
inline constexpr std::span<const std::string_view> path{detail::path_names<Names...>};

}  // namespace weft
