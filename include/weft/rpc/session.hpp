// SPDX-License-Identifier: BSL-1.0
// The handshake: who is there, and may they talk?
//
//   connecting side                                accepting side
//     hello {weft, features, token, rank, to,        judges it: token, identities, versions,
//            incarnation}                  ───►      and which of two connections stays
//                                          ◄───    welcome {weft, features, rank, incarnation}
//                                                  or refuse {error}
//
// Payloads are JSON. Nothing but these frames is read before the judgement.
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/wire/error_codec.hpp>
#include <weft/wire/frame.hpp>
#include <weft/wire/message.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft {

// Functions here are templates only so that they are compiled where a worker is made.

/// What a hello or welcome says.
struct greeting {
  int version = wire_version;
  std::vector<std::string> features;  ///< must be equal on both sides; none exist yet
  std::string token;                  ///< 32 hexadecimal digits; empty in a welcome
  std::uint32_t rank = 0;             ///< of the speaker
  std::uint32_t to = 0;               ///< of the one spoken to
  std::string incarnation;            ///< of the speaker
};

template <class = void>
[[nodiscard]] greeting introduce(const membership& all, std::uint32_t to) {
  return {wire_version, {}, all.token.text(), all.rank, to, all.self().incarnation.text()};
}

template <class = void>
[[nodiscard]] frame greeting_frame(frame_kind kind, const greeting& g) {
  const nlohmann::json json = {{"weft", g.version}, {"features", g.features},
                               {"token", g.token},  {"rank", g.rank},
                               {"to", g.to},        {"incarnation", g.incarnation}};
  const std::string text = json.dump();
  message m;
  m.payload().raw(text.data(), text.size());
  frame_header header;
  header.kind = kind;
  return std::move(m).finish(header);
}

template <class = void>
[[nodiscard]] frame refusal_frame(const error& why) {
  message m;
  codec<error>::encode(m.payload(), why);
  frame_header header;
  header.kind = frame_kind::refuse;
  return std::move(m).finish(header);
}

/// Reads a greeting; protocol_error if it is none.
template <class = void>
[[nodiscard]] expected<greeting> read_greeting(const frame& f) {
  const auto bytes = f.payload();
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  const auto json = nlohmann::json::parse(begin, begin + bytes.size(), nullptr, false);
  auto bad = [](const char* what) {
    return tl::unexpected(error(errc::protocol_error, std::string("a greeting ") + what,
                                execution::not_sent, origin::transport));
  };
  if (!json.is_object()) return bad("that is not a JSON object");
  greeting g;
  auto number = [&](const char* key, auto& out) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_number_unsigned()) return false;
    const auto value = it->template get<std::uint64_t>();
    if (value > 0x7fffffff) return false;
    out = static_cast<std::remove_reference_t<decltype(out)>>(value);
    return true;
  };
  auto text = [&](const char* key, std::string& out) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_string()) return false;
    out = it->template get<std::string>();
    return true;
  };
  if (!number("weft", g.version)) return bad("without a version");
  if (!number("rank", g.rank) || !number("to", g.to)) return bad("without ranks");
  if (!text("token", g.token) || !text("incarnation", g.incarnation)) {
    return bad("without token or incarnation");
  }
  const auto features = json.find("features");
  if (features == json.end() || !features->is_array()) return bad("without features");
  for (const auto& f2 : *features) {
    if (!f2.is_string()) return bad("with a feature that is not text");
    g.features.push_back(f2.get<std::string>());
  }
  return g;
}

template <class = void>
[[nodiscard]] error read_refusal(const frame& f) {
  parts record;
  try {
    const auto end =
        (f.header.flags & flag_padded) != 0 ? reader::tail::zeros : reader::tail::exact;
    reader r(f.payload(), record, default_limits, end);
    error why = codec<error>::decode(r);
    r.finish();
    if (!why) r.fail("a refusal that says success");
    return why;
  } catch (const rpc_error& e) {
    return error(errc::protocol_error, "an unreadable refusal: " + e.error().message());
  }
}

/// Whether a speaker with that greeting is the member it claims to be. Errors: version_mismatch,
/// unauthenticated, wrong_peer. `secret`: whether the token must be shown (in a hello).
enum class shows_token : std::uint8_t { yes, no };
template <class = void>
[[nodiscard]] expected<void> judge(const membership& all, const greeting& g, shows_token token) {
  auto refuse = [](errc code, std::string text) {
    return tl::unexpected(error(code, std::move(text), execution::not_sent, origin::transport));
  };
  if (g.version != wire_version) {
    return refuse(errc::version_mismatch, "the peer speaks wire version " +
                                              std::to_string(g.version) + ", this worker " +
                                              std::to_string(wire_version));
  }
  if (!g.features.empty()) {
    return refuse(errc::version_mismatch, "the peer asks for the feature '" +
                                              g.features.front().substr(0, 64) +
                                              "', which this worker does not have");
  }
  if (token == shows_token::yes) {
    const auto shown = id128::parse(g.token);
    if (!shown || !shown->same_secret(all.token)) {
      return refuse(errc::unauthenticated, "the job token is wrong");
    }
  }
  if (g.rank >= all.size() || g.rank == all.rank || g.to != all.rank) {
    return refuse(errc::wrong_peer, "rank " + std::to_string(g.rank) + " spoke to rank " +
                                        std::to_string(g.to) + ", this is rank " +
                                        std::to_string(all.rank));
  }
  const auto incarnation = id128::parse(g.incarnation);
  if (!incarnation || *incarnation != all.members[g.rank].incarnation) {
    return refuse(errc::wrong_peer, "another process than the one that rank " +
                                        std::to_string(g.rank) + " registered");
  }
  return {};
}

}  // namespace weft
