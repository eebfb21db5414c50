// SPDX-License-Identifier: BSL-1.0
// What a worker says of itself when workers meet, as text; and the token that the user provides.
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/launch/placement.hpp>
#include <weft/rpc/membership.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace weft::engine {

/// Any bytes as text of JSON, which is Unicode: byte b as the character b, and back. A name may be
/// anything.
[[nodiscard]] inline std::string as_unicode(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    if (b < 0x80) {
      out += c;
    } else {
      out += static_cast<char>(0xc0 | b >> 6);
      out += static_cast<char>(0x80 | (b & 0x3f));
    }
  }
  return out;
}
[[nodiscard]] inline std::string as_bytes(const std::string& unicode) {
  std::string out;
  for (std::size_t i = 0; i < unicode.size(); ++i) {
    const auto lead = static_cast<unsigned char>(unicode[i]);
    if (lead < 0x80) {
      out += unicode[i];
      continue;
    }
    const auto rest = ++i < unicode.size() ? static_cast<unsigned char>(unicode[i]) : 0u;
    if (lead > 0xc3)
      throw rpc_error(errc::rendezvous_failed, "a worker's name has a character above U+00FF");
    out += static_cast<char>((lead & 3u) << 6 | (rest & 0x3fu));
  }
  return out;
}

/// One line of JSON.
[[nodiscard]] inline std::string describe(const member& m) {
  nlohmann::json addresses = nlohmann::json::array();
  for (const auto& a : m.addresses) addresses.push_back({a.transport, a.endpoint});
  return nlohmann::json{{"name", as_unicode(m.name)},
                        {"role", as_unicode(m.role)},
                        {"incarnation", m.incarnation.text()},
                        {"addresses", addresses},
                        {"window", m.window}}
      .dump();
}
/// Throws rpc_error rendezvous_failed if that is no worker.
[[nodiscard]] inline member read_member(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    member m;
    m.name = as_bytes(json.at("name").get<std::string>());
    m.role = as_bytes(json.at("role").get<std::string>());
    const auto incarnation = id128::parse(json.at("incarnation").get<std::string>());
    if (!incarnation) throw rpc_error(errc::rendezvous_failed, "a worker's incarnation is no id");
    m.incarnation = *incarnation;
    m.window = json.at("window").get<std::uint64_t>();
    for (const auto& a : json.at("addresses")) {
      m.addresses.push_back({a.at(0).get<std::string>(), a.at(1).get<std::string>()});
    }
    return m;
  } catch (const nlohmann::json::exception& e) {
    throw rpc_error(errc::rendezvous_failed,
                    std::string("the registration of a worker is unreadable: ") + e.what());
  }
}

/// Throws rpc_error duplicate_name, which names both ranks.
inline void check_names(const member_list& all) {
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      if (all[a].name != all[b].name) continue;
      throw rpc_error(errc::duplicate_name,
                      "ranks " + std::to_string(a) + " and " + std::to_string(b) +
                          " are both named '" + all[a].name +
                          "' (options.name may be a function of rank and size)");
    }
  }
}

/// "after 6000 ms these ranks of 3 are missing: 1, 2"
[[nodiscard]] inline std::string missing_ranks(const std::vector<bool>& there,
                                               std::chrono::milliseconds waited) {
  std::string missing;
  for (std::size_t r = 0; r < there.size(); ++r) {
    if (!there[r]) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
  }
  return "after " + std::to_string(waited.count()) + " ms these ranks of " +
         std::to_string(there.size()) + " are missing: " + missing;
}

/// The token in the file that WEFT_TOKEN_FILE names; nothing if it names none. Throws rpc_error
/// invalid_argument if it does not hold 32 hexadecimal digits.
[[nodiscard]] inline std::optional<id128> token_from_file() {
  const auto path = environment_text("WEFT_TOKEN_FILE");
  if (!path) return std::nullopt;
  std::ifstream in(*path);
  std::string text;
  in >> text;
  const auto token = id128::parse(text);
  if (!token || *token == id128{}) {
    throw rpc_error(errc::invalid_argument, "WEFT_TOKEN_FILE='" + *path +
                                                "' must name a file with 32 hexadecimal digits "
                                                "(0-9, a-f), the secret of the job");
  }
  return token;
}

}  // namespace weft::engine
