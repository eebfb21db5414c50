// SPDX-License-Identifier: BSL-1.0
// Bodies of ../handshake.hpp.
#pragma once

#include <weft/engine/link/handshake.hpp>
#include <weft/engine/link/hmac.hpp>
#include <weft/wire/error_codec.hpp>
#include <weft/wire/message.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::engine {

[[nodiscard]] inline error handshake_error(errc code, std::string text) {
  return {code, std::move(text), call_progress::not_sent, origin::transport};
}

[[nodiscard]] inline frame json_frame(frame_kind kind, std::string_view json) {
  message m;
  m.payload().raw(json.data(), json.size());
  frame_header header;
  header.kind = kind;
  return std::move(m).finish(header);
}

/// Cut so that it stays well below the 4 KiB of a handshake's frame.
[[nodiscard]] inline frame refusal_frame_of(const error& why) {
  message m;
  codec<error>::encode(m.payload(), why.with([](error_detail& d) {
    for (std::string* text : {&d.text, &d.peer, &d.function, &d.remote_type}) {
      if (text->size() > 512) text->resize(512);
    }
    d.cause_code = {};
    d.cause = {};
  }));
  frame_header header;
  header.kind = frame_kind::refuse;
  return std::move(m).finish(header);
}

/// A frame's payload as a JSON object whose members are asked for one by one. Not a nlohmann::json:
/// the destructor of that allocates, and so ends a process that lacks memory.
class json_object {
 public:
  explicit json_object(const frame& f) {
    const auto bytes = f.payload();
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    reads into(members_);
    if (!nlohmann::json::sax_parse(begin, begin + bytes.size(), &into)) {
      throw rpc_error(bad("that is not a JSON object"));
    }
  }
  [[nodiscard]] std::uint32_t number(const char* key) const {
    const member* const m = find(key, member::is_number);
    if (!m || m->value > 0x7fffffff) {
      throw rpc_error(bad("without a number '" + std::string(key) + "'"));
    }
    return static_cast<std::uint32_t>(m->value);
  }
  [[nodiscard]] const std::string& text(const char* key) const {
    const member* const m = find(key, member::is_text);
    if (!m) throw rpc_error(bad("without a text '" + std::string(key) + "'"));
    return m->texts.front();
  }
  [[nodiscard]] id128 id(const char* key) const {
    const auto found = id128::parse(text(key));
    if (!found) throw rpc_error(bad("whose '" + std::string(key) + "' is no id"));
    return *found;
  }
  [[nodiscard]] const std::vector<std::string>& texts(const char* key) const {
    if (const member* const m = find(key, member::is_texts)) return m->texts;
    throw rpc_error(bad(find(key, member::is_mixed)
                            ? "whose '" + std::string(key) + "' is no list of texts"
                            : "without a list '" + std::string(key) + "'"));
  }

 private:
  struct member {
    enum kind : std::uint8_t { is_other, is_number, is_text, is_texts, is_mixed } is = is_other;
    std::uint64_t value = 0;
    std::vector<std::string> texts{};  // one, or a list
  };
  using all_members = std::map<std::string, member, std::less<>>;

  /// Told of what stands there, in order; an object, or it ends at once.
  class reads final : public nlohmann::json_sax<nlohmann::json> {
   public:
    explicit reads(all_members& into) : into_(into) {}

    bool null() override { return other(); }
    bool boolean(bool) override { return other(); }
    bool number_integer(number_integer_t) override { return other(); }
    bool number_float(number_float_t, const string_t&) override { return other(); }
    bool binary(binary_t&) override { return other(); }
    bool number_unsigned(number_unsigned_t value) override {
      if (depth_ != 1) return other();
      *at_ = {member::is_number, value};
      return true;
    }
    bool string(string_t& words) override {
      if (depth_ == 1) *at_ = {member::is_text};
      if (depth_ == 1 || (depth_ == 2 && at_->is == member::is_texts)) {
        at_->texts.push_back(std::move(words));
      }
      return depth_ > 0;
    }
    bool start_object(std::size_t) override {
      if (depth_ > 0) return deeper(member::is_other);
      depth_ = 1;
      return true;
    }
    bool start_array(std::size_t) override { return deeper(member::is_texts); }
    bool end_object() override { return up(); }
    bool end_array() override { return up(); }
    bool key(string_t& name) override {
      if (depth_ == 1) at_ = &into_[name];
      return true;
    }
    bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
      return false;
    }

   private:
    bool other() {
      if (depth_ == 1) *at_ = {};
      if (depth_ == 2 && at_->is == member::is_texts) at_->is = member::is_mixed;
      return depth_ > 0;
    }
    bool up() {
      --depth_;
      return true;
    }
    bool deeper(member::kind as) {
      if (!other()) return false;
      if (depth_++ == 1) at_->is = as;
      return true;
    }

    all_members& into_;
    member* at_ = nullptr;  // which is being read
    std::size_t depth_ = 0;
  };

  [[nodiscard]] const member* find(const char* key, member::kind is) const {
    const auto it = members_.find(key);
    return it != members_.end() && it->second.is == is ? &it->second : nullptr;
  }
  static error bad(const std::string& what) {
    return handshake_error(errc::protocol_error, "a handshake frame " + what);
  }
  all_members members_;
};

/// protocol_error if it is no refusal.
[[nodiscard]] inline error refusal_in(const frame& f) {
  message_extensions record;
  try {
    const auto end =
        (f.header.flags & flag_padded) != 0 ? reader::tail::zeros : reader::tail::exact;
    reader r(f.payload(), record, default_limits, end);
    error why = codec<error>::decode(r);
    r.finish();
    if (!why) r.fail("a refusal that says success");
    return why;
  } catch (const rpc_error& e) {
    return handshake_error(errc::protocol_error, "an unreadable refusal: " + e.error().message());
  }
}

/// What a hello and a challenge say of their speaker.
struct handshake::introduction {
  std::uint32_t version = wire_version;
  std::vector<std::string> features;
  std::string purpose;
  std::uint32_t rank = 0;
  std::uint32_t to = 0;
  id128 incarnation;
  id128 nonce;

  /// Its members in the order of their names. None of its texts has a character that JSON would
  /// escape.
  [[nodiscard]] std::string json(const std::string& proof = {}) const {
    std::string list;
    for (const std::string& f : features) list += (list.empty() ? "\"" : ",\"") + f + "\"";
    return R"({"features":[)" + list + R"(],"for":")" + purpose + R"(","incarnation":")" +
           incarnation.text() + R"(","nonce":")" + nonce.text() +
           (proof.empty() ? "" : R"(","proof":")" + proof) + R"(","rank":)" + std::to_string(rank) +
           R"(,"to":)" + std::to_string(to) + R"(,"weft":)" + std::to_string(version) + "}";
  }
  /// The version is judged before anything else is looked for: another one may lack the rest.
  static introduction from(const json_object& in) {
    introduction out;
    out.version = in.number("weft");
    if (out.version != wire_version) {
      throw rpc_error(handshake_error(
          errc::version_mismatch, "the peer speaks wire version " + std::to_string(out.version) +
                                      ", this worker " + std::to_string(wire_version)));
    }
    out.features = in.texts("features");
    out.purpose = in.text("for");
    out.rank = in.number("rank");
    out.to = in.number("to");
    out.incarnation = in.id("incarnation");
    out.nonce = in.id("nonce");
    return out;
  }
};

inline handshake::introduction handshake::introduce() const {
  return {wire_version,
          {std::string(feature_bulk)},
          std::string(bulk_ ? "bulk" : "calls"),
          all_.rank,
          peer_,
          all_.self().incarnation,
          nonce_};
}

inline frame handshake::hello() const { return json_frame(frame_kind::hello, introduce().json()); }

inline std::string handshake::speaker(bool accepting) const {
  const bool mine = accepting != connects_;
  const std::uint32_t rank = mine ? all_.rank : peer_;
  return std::to_string(rank) + " " + all_.members[rank].incarnation.text() + " " +
         (mine ? nonce_ : their_nonce_).text() + "\n";
}

inline std::string handshake::proof_of(bool accepting) const {
  return hmac_sha256(all_.token.text(), "weft " + std::to_string(wire_version) +
                                            (accepting ? " accepts for " : " connects for ") +
                                            (bulk_ ? "bulk\n" : "calls\n") + speaker(false) +
                                            speaker(true));
}

/// Whether that can be a member that means this worker. Errors: version_mismatch, wrong_peer.
inline expected<void> handshake::judge(const introduction& theirs) const {
  auto no = [](errc code, std::string text) {
    return tl::unexpected(handshake_error(code, std::move(text)));
  };
  if (theirs.purpose != "bulk" && theirs.purpose != "calls") {
    return no(errc::version_mismatch, "the peer wants a connection for '" +
                                          theirs.purpose.substr(0, 64) +
                                          "', which this worker does not know");
  }
  if (theirs.rank >= all_.size() || theirs.rank == all_.rank || theirs.to != all_.rank ||
      (connects_ && theirs.rank != peer_)) {
    return no(errc::wrong_peer,
              "rank " + std::to_string(theirs.rank) + " spoke to rank " +
                  std::to_string(theirs.to) + ", this is rank " + std::to_string(all_.rank) +
                  (connects_ ? ", which called rank " + std::to_string(peer_) : std::string()));
  }
  if (theirs.incarnation != all_.members[theirs.rank].incarnation) {
    return no(errc::wrong_peer, "the process is not the one that rank " +
                                    std::to_string(theirs.rank) + " registered");
  }
  return {};
}

inline void handshake::agree(const introduction& theirs) noexcept {
  has_bulk_ = std::find(theirs.features.begin(), theirs.features.end(), feature_bulk) !=
              theirs.features.end();
}

inline std::optional<frame> handshake::on_hello(const frame& f) {
  const auto theirs = introduction::from(json_object(f));
  if (auto ok = judge(theirs); !ok) throw rpc_error(ok.error());
  agree(theirs);
  bulk_ = theirs.purpose == "bulk";
  peer_ = theirs.rank;
  their_nonce_ = theirs.nonce;
  step_ = step::proof;
  return json_frame(frame_kind::challenge, introduce().json(proof_of(true)));
}

inline std::optional<frame> handshake::on_challenge(const frame& f) {
  const json_object object(f);
  const auto theirs = introduction::from(object);
  if (auto ok = judge(theirs); !ok) throw rpc_error(ok.error());
  agree(theirs);
  their_nonce_ = theirs.nonce;
  if (!same_secret(object.text("proof"), proof_of(true))) {
    throw rpc_error(handshake_error(errc::unauthenticated,
                                    "the process that answered does not know the job token"));
  }
  member_ = true;
  step_ = step::welcome;
  return json_frame(frame_kind::proof, "{\"proof\":\"" + proof_of(false) + "\"}");
}

inline std::optional<frame> handshake::on_proof(const frame& f) {
  if (!same_secret(json_object(f).text("proof"), proof_of(false))) {
    throw rpc_error(handshake_error(errc::unauthenticated, "the job token is wrong"));
  }
  member_ = true;
  step_ = step::over;
  now_ = state::proven;
  return std::nullopt;
}

inline void handshake::on_refusal(const frame& f) {
  error reason = refusal_in(f);
  // A stranger may say why there will be no handshake, and nothing that only a member can know.
  const bool plain = reason == errc::version_mismatch || reason == errc::wrong_peer ||
                     reason == errc::protocol_error || reason == errc::resource_exhausted;
  if (!member_ && !plain) {
    reason = handshake_error(errc::protocol_error,
                             "the peer refused before it proved that it knows the job "
                             "token: " +
                                 reason.message());
  }
  end(state::refused, std::move(reason));
}

inline std::optional<frame> handshake::arrived(frame&& f) {
  if (now_ == state::accepted || now_ == state::refused) return std::nullopt;
  const frame_kind kind = f.header.kind;
  try {
    if (step_ == step::hello && kind == frame_kind::hello) return on_hello(f);
    if (step_ == step::challenge && kind == frame_kind::challenge) return on_challenge(f);
    if (step_ == step::proof && kind == frame_kind::proof) return on_proof(f);
    if (step_ == step::welcome && kind == frame_kind::welcome) {
      end(state::accepted);
      return json_frame(frame_kind::ready, "{}");
    }
    if (step_ == step::ready && kind == frame_kind::ready) {
      end(state::accepted);
      return std::nullopt;
    }
    if (connects_ && kind == frame_kind::refuse) {
      on_refusal(f);
      return std::nullopt;
    }
    throw rpc_error(handshake_error(errc::protocol_error,
                                    "a frame of kind " + std::to_string(static_cast<int>(kind)) +
                                        " during the handshake"));
  } catch (const rpc_error& e) {
    end(state::refused, e.error());
    if (connects_) return std::nullopt;
    return refusal_frame_of(why_);
  }
}

inline std::optional<frame> handshake::failed(const error& reason) {
  if (now_ == state::accepted || now_ == state::refused) return std::nullopt;
  end(state::refused, reason);
  if (connects_ || reason != errc::version_mismatch) return std::nullopt;
  return refusal_frame_of(reason);
}

inline frame handshake::welcome() {
  now_ = state::waiting;
  step_ = step::ready;
  return json_frame(frame_kind::welcome, "{}");
}

inline frame handshake::refuse(const error& reason) {
  end(state::refused, reason);
  return refusal_frame_of(reason);
}

}  // namespace weft::engine
