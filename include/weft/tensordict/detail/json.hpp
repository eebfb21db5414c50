// SPDX-License-Identifier: BSL-1.0
// JSON as Python writes and reads it.
#pragma once

#include <weft/tensordict/error.hpp>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace weft::detail {

/// Reads JSON in which NaN, Infinity and -Infinity may be numbers. Throws tensordict_error `format`
/// for anything else, for a key twice in an object, and for over 500 lists and objects within one
/// another.
[[nodiscard]] nlohmann::ordered_json read_json(std::string_view text);
/// Adds a member that the object does not have; does not look for it.
void add_member(nlohmann::ordered_json& object, const std::string& key,
                nlohmann::ordered_json value);
/// Writes such JSON, in one line. Throws `format` if a string is no UTF-8, or it is so deep.
[[nodiscard]] std::string write_json(const nlohmann::ordered_json& value);

}  // namespace weft::detail
