// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/table.hpp.
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

namespace detail {

/// A program and each of its shared libraries may register one function. Several constructors of
/// one class may differ in types that are alike on the wire, such as long and long long: any of
/// them makes the same object. Not if they take types of equal names. Two hidden libraries may have
/// two classes of one name, which differ in size, mostly.
[[nodiscard]] inline bool same_function(const function_entry& a, const function_entry& b) noexcept {
  if (a.layout != b.layout) return false;
  if (a.form && a.form == b.form && a.code == b.code) return true;
  return a.constructed && a.constructed == b.constructed &&
         a.arguments_in_full == b.arguments_in_full;
}

/// The source file of an entry. What begins in a header, or in none, was precompiled.
[[nodiscard]] inline std::string file_of(const function_entry& f) {
  const std::string_view path = f.file ? *f.file : "";
  const std::string_view ending = path.substr(std::min(path.rfind('.'), path.size()));
  if (path.empty() || path.starts_with('<') || ending.starts_with(".h") ||
      path.ends_with(".hxx.cxx")) {
    return "a file whose name a precompiled header hides (include weft/weft.hpp in that file)";
  }
  return std::string(path);
}

/// Why `a` and `b` cannot be in one program, or success.
[[nodiscard]] inline error ambiguity(const function_entry& a, const function_entry& b) {
  if (a.id != b.id) return {};
  const std::string files = "one in " + file_of(a) + ", one in " + file_of(b);
  const std::string named = "weft::named<\"name\", &f>";
  if (a.name != b.name) {
    return error(errc::ambiguous_function, "'" + std::string(a.name) + "' and '" +
                                               std::string(b.name) +
                                               "' have the same id by chance (" + files +
                                               "); give one a name of its own: " + named);
  }
  if (a.signature != b.signature || same_function(a, b)) return {};
  return error(
      errc::ambiguous_function,
      "this program has two functions '" + std::string(a.name) + "' of one signature, " + files +
          "; a caller could reach the wrong one. If they are the same function " +
          "(static, in a header), make it `inline`; if a shared library of hidden visibility "
          "contains it, mark it [[gnu::visibility(\"default\")]], too. If they are two functions, "
          "give one a name of its own: " +
          named);
}

}  // namespace detail

inline function_table::function_table(const function_entry* first) {
  for (const function_entry* f = first; f; f = f->next) functions_.push_back(f);
  std::sort(functions_.begin(), functions_.end(), before);
  for (std::size_t i = 0; i < functions_.size(); ++i) {
    if (!functions_[i]->portable) refuse_name(*functions_[i]);
    if (i == 0) continue;
    // Neighbours are enough: same id, then same signature, then same name.
    if (error e = detail::ambiguity(*functions_[i - 1], *functions_[i])) {
      throw rpc_error(std::move(e));
    }
  }
}

inline const function_entry* function_table::known(std::uint64_t id,
                                                   std::uint32_t signature) const noexcept {
  function_entry wanted;
  wanted.id = id;
  wanted.signature = signature;
  const auto at = std::lower_bound(functions_.begin(), functions_.end(), &wanted, before);
  const bool found = at != functions_.end() && (*at)->id == id && (*at)->signature == signature;
  return found ? *at : nullptr;
}

inline expected<const function_entry*> function_table::find(std::uint64_t id,
                                                            std::uint32_t signature) const {
  if (const function_entry* f = known(id, signature)) return f;
  const auto near = std::find_if(functions_.begin(), functions_.end(),
                                 [id](const function_entry* f) { return f->id == id; });
  if (near == functions_.end()) {
    return tl::unexpected(
        error(errc::unknown_function,
              "this program does not contain a function with id " + std::to_string(id) +
                  " (a shared library that contains it must be loaded before the run begins)",
              call_progress::not_executed, origin::remote_runtime));
  }
  return tl::unexpected(error(errc::signature_mismatch,
                              "'" + std::string((*near)->name) + "' has signature " +
                                  std::to_string((*near)->signature) +
                                  " here, the caller expects " + std::to_string(signature),
                              call_progress::not_executed, origin::remote_runtime));
}

inline bool function_table::before(const function_entry* a, const function_entry* b) noexcept {
  return a->id != b->id ? a->id < b->id : a->signature < b->signature;
}

inline void function_table::refuse_name(const function_entry& f) {
  throw rpc_error(errc::ambiguous_function,
                  "'" + std::string(f.name) + "', in " + detail::file_of(f) +
                      ", has no name that all compilers agree on (a part of it is a lambda, a "
                      "local or unnamed class, or an expression); put the class into a "
                      "namespace, or give the function a name: weft::named<\"name\", &f>");
}

}  // namespace weft
