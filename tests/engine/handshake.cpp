// SPDX-License-Identifier: BSL-1.0
// The handshake, stepped: both sides are objects, the wire is a vector of frames.
#include <weft/engine/link/handshake.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace handshakes {

using namespace weft;
using weft::engine::handshake;
using state = handshake::state;

membership three(std::uint32_t rank, id128 token = {0xabc, 0xdef}) {
  membership all;
  all.rank = rank;
  all.token = token;
  for (std::uint32_t r = 0; r < 3; ++r) {
    all.members.push_back({"w" + std::to_string(r), "", {5, r}, {}});
  }
  return all;
}
random_source counting(std::uint64_t from) {
  return [next = from]() mutable { return next++; };
}

/// A frame of that kind whose payload is that text, as anybody can make one.
frame with_text(frame_kind kind, const std::string& text) {
  message m;
  m.payload().raw(text.data(), text.size());
  frame_header h;
  h.kind = kind;
  return std::move(m).finish(h);
}
std::string text_of(const frame& f) {
  const auto bytes = f.payload();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
frame copy(const frame& f) {
  frame out = with_text(f.header.kind, text_of(f));
  out.header.flags = f.header.flags;
  return out;
}
/// The frame with one member of its JSON object changed.
frame changed(const frame& f, const std::function<void(nlohmann::json&)>& edit) {
  auto json = nlohmann::json::parse(text_of(f));
  edit(json);
  return with_text(f.header.kind, json.dump());
}

/// Two workers that talk: rank 2 connects to rank 1.
struct pair {
  explicit pair(id128 token_of_acceptor = {0xabc, 0xdef}, std::uint64_t nonces = 100)
      : one(three(1, token_of_acceptor)), two(three(2)) {
    random_source first = counting(nonces);
    random_source second = counting(nonces + 50);
    accepts.emplace(one, first);
    connects.emplace(two, 1, second);
  }
  membership one, two;
  std::optional<handshake> accepts, connects;
};

TEST_CASE("handshake: two members prove themselves to each other") {
  pair p;
  const frame hello = p.connects->hello();
  CHECK(hello.header.kind == frame_kind::hello);
  CHECK(hello.wire_size() <= default_limits.handshake);
  auto challenge = p.accepts->arrived(copy(hello));
  REQUIRE(challenge);
  CHECK(challenge->header.kind == frame_kind::challenge);
  CHECK(p.accepts->current_state() == state::waiting);
  auto proof = p.connects->arrived(copy(*challenge));
  REQUIRE(proof);
  CHECK(proof->header.kind == frame_kind::proof);
  CHECK(p.connects->current_state() == state::waiting);
  CHECK_FALSE(p.accepts->arrived(copy(*proof)));
  REQUIRE(p.accepts->current_state() == state::proven);
  CHECK(p.accepts->peer() == 2);
  const frame welcome = p.accepts->welcome();
  CHECK(p.accepts->current_state() == state::waiting);
  CHECK(welcome.header.kind == frame_kind::welcome);
  const auto ready = p.connects->arrived(copy(welcome));
  REQUIRE(ready);
  CHECK(ready->header.kind == frame_kind::ready);
  CHECK(p.connects->current_state() == state::accepted);
  CHECK_FALSE(p.accepts->arrived(copy(*ready)));
  CHECK(p.accepts->current_state() == state::accepted);
  CHECK(p.connects->peer() == 1);
  for (const frame* f :
       std::initializer_list<const frame*>{&hello, &*challenge, &*proof, &welcome, &*ready}) {
    CHECK(text_of(*f).find(p.one.token.text()) == std::string::npos);
  }
}

TEST_CASE("handshake: the proofs are those of the wire page") {
  pair p;
  auto challenge = p.accepts->arrived(p.connects->hello());
  REQUIRE(challenge);
  const auto said = nlohmann::json::parse(text_of(*challenge));
  const std::string lines = "2 00000000000000050000000000000002 " + id128{150, 151}.text() +
                            "\n1 00000000000000050000000000000001 " + id128{100, 101}.text() + "\n";
  const std::string version = "weft " + std::to_string(wire_version);
  CHECK(said.at("proof") ==
        engine::hmac_sha256(id128{0xabc, 0xdef}.text(), version + " accepts for calls\n" + lines));
  auto proof = p.connects->arrived(std::move(*challenge));
  REQUIRE(proof);
  CHECK(nlohmann::json::parse(text_of(*proof)).at("proof") ==
        engine::hmac_sha256(id128{0xabc, 0xdef}.text(), version + " connects for calls\n" + lines));
  // RFC 4231, test case 2.
  CHECK(engine::hmac_sha256("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST_CASE("handshake: what comes right behind its last frame is none of its own, on both sides") {
  pair p;
  auto challenge = p.accepts->arrived(p.connects->hello());
  auto proof = p.connects->arrived(std::move(*challenge));
  static_cast<void>(p.accepts->arrived(std::move(*proof)));
  auto ready = p.connects->arrived(p.accepts->welcome());
  REQUIRE(ready);
  static_cast<void>(p.accepts->arrived(std::move(*ready)));
  for (handshake* side : {&*p.connects, &*p.accepts}) {
    CHECK_FALSE(side->arrived(with_text(frame_kind::request, "a")));
    CHECK_FALSE(side->arrived(with_text(frame_kind::hello, "b")));
    CHECK(side->current_state() == state::accepted);
  }
}

TEST_CASE("handshake: until the connecting side is ready, it may give up") {
  pair p;
  auto challenge = p.accepts->arrived(p.connects->hello());
  auto proof = p.connects->arrived(std::move(*challenge));
  static_cast<void>(p.accepts->arrived(std::move(*proof)));
  static_cast<void>(p.accepts->welcome());
  CHECK_FALSE(p.accepts->failed(error(errc::peer_died, "gone")));
  CHECK(p.accepts->current_state() == state::refused);
  CHECK(p.accepts->why() == errc::peer_died);
}

TEST_CASE("handshake: a member may be told that another connection stays") {
  pair p;
  auto challenge = p.accepts->arrived(p.connects->hello());
  auto proof = p.connects->arrived(std::move(*challenge));
  static_cast<void>(p.accepts->arrived(std::move(*proof)));
  static_cast<void>(p.connects->arrived(p.accepts->refuse(error(errc::closed, "another stays"))));
  CHECK(p.accepts->current_state() == state::refused);
  CHECK(p.connects->current_state() == state::refused);
  CHECK(p.connects->why() == errc::closed);
}

TEST_CASE("handshake: a stranger's refusal says nothing that only a member can know") {
  for (const errc code : {errc::closed, errc::peer_died, errc::unauthenticated, errc::cancelled}) {
    pair p;
    static_cast<void>(p.connects->hello());
    CHECK_FALSE(p.connects->arrived(p.accepts->refuse(error(code, "another stays"))));
    CHECK(p.connects->current_state() == state::refused);
    CHECK(p.connects->why() == errc::protocol_error);
    CHECK(p.connects->why().message().find("refused before it proved") != std::string::npos);
  }
  pair p;
  static_cast<void>(p.connects->arrived(p.accepts->refuse(error(errc::wrong_peer, "not me"))));
  CHECK(p.connects->why() == errc::wrong_peer);
}

TEST_CASE("handshake: a refusal fits into a handshake's frame, whatever it says") {
  pair p;
  const error inner(errc::peer_died, std::string(4000, 'i'));
  const error why = error(errc::wrong_peer, std::string(4000, 'x')).with([&](error_detail& d) {
    d.peer = d.function = d.remote_type = std::string(4000, 'y');
    d.cause_code = inner.code();
    d.cause = inner.shared_detail();
  });
  const frame f = p.accepts->refuse(why);
  CHECK(f.wire_size() <= default_limits.handshake);
  static_cast<void>(p.connects->arrived(copy(f)));
  CHECK(p.connects->why() == errc::wrong_peer);
}

TEST_CASE("handshake: who does not know the token is refused by either side") {
  {
    pair p(id128{1, 2});  // the accepting side is an impostor: it has another token
    auto challenge = p.accepts->arrived(p.connects->hello());
    REQUIRE(challenge);
    CHECK_FALSE(p.connects->arrived(std::move(*challenge)));
    CHECK(p.connects->current_state() == state::refused);
    CHECK(p.connects->why() == errc::unauthenticated);
  }
  for (const char* bad : {"", "0", "nonsense"}) {
    pair p;
    auto challenge = p.accepts->arrived(p.connects->hello());
    auto proof = p.connects->arrived(std::move(*challenge));
    const frame wrong = changed(*proof, [&](nlohmann::json& j) { j["proof"] = bad; });
    const auto answer = p.accepts->arrived(copy(wrong));
    REQUIRE(answer);
    CHECK(answer->header.kind == frame_kind::refuse);
    CHECK(p.accepts->current_state() == state::refused);
    CHECK(p.accepts->why() == errc::unauthenticated);
    static_cast<void>(p.connects->arrived(copy(*answer)));
    CHECK(p.connects->why() == errc::unauthenticated);
  }
  // One digit that is wrong, each in turn.
  for (std::size_t at = 0; at < 64; ++at) {
    pair p;
    auto challenge = p.accepts->arrived(p.connects->hello());
    auto proof = p.connects->arrived(std::move(*challenge));
    const frame wrong = changed(*proof, [&](nlohmann::json& j) {
      auto text = j.at("proof").get<std::string>();
      text[at] = text[at] == '0' ? '1' : '0';
      j["proof"] = text;
    });
    static_cast<void>(p.accepts->arrived(copy(wrong)));
    CHECK(p.accepts->current_state() == state::refused);
  }
}

using edit = std::function<void(nlohmann::json&)>;
struct lie {
  const char* what;
  edit tell;
  errc code;
};

TEST_CASE("handshake: a lie in the hello is refused with its reason, and both sides hear it") {
  const lie lies[] = {
      {"a later version", [](auto& j) { j["weft"] = wire_version + 1; }, errc::version_mismatch},
      {"no version", [](auto& j) { j["weft"] = 0; }, errc::version_mismatch},
      {"another version, and nothing else",
       [](auto& j) { j = nlohmann::json{{"weft", wire_version + 1}}; }, errc::version_mismatch},
      {"an unknown purpose", [](auto& j) { j["for"] = "zip"; }, errc::version_mismatch},
      {"a rank out of the world", [](auto& j) { j["rank"] = 3; }, errc::wrong_peer},
      {"our own rank", [](auto& j) { j["rank"] = 1; }, errc::wrong_peer},
      {"another's rank", [](auto& j) { j["rank"] = 0; }, errc::wrong_peer},
      {"for another", [](auto& j) { j["to"] = 0; }, errc::wrong_peer},
      {"another incarnation", [](auto& j) { j["incarnation"] = id128{5, 9}.text(); },
       errc::wrong_peer},
      {"no incarnation", [](auto& j) { j["incarnation"] = "x"; }, errc::protocol_error},
      {"a short nonce", [](auto& j) { j["nonce"] = "12"; }, errc::protocol_error},
      {"no nonce", [](auto& j) { j.erase("nonce"); }, errc::protocol_error},
      {"a negative rank", [](auto& j) { j["rank"] = -1; }, errc::protocol_error},
      {"a rank of 64 bits", [](auto& j) { j["rank"] = std::uint64_t{1} << 40; },
       errc::protocol_error},
      {"features that are no list", [](auto& j) { j["features"] = 3; }, errc::protocol_error},
      {"a feature that is no text", [](auto& j) { j["features"] = {1}; }, errc::protocol_error},
  };
  for (const lie& l : lies) {
    pair p;
    const std::string what = l.what;
    CAPTURE(what);
    const auto answer = p.accepts->arrived(changed(p.connects->hello(), l.tell));
    REQUIRE(answer);
    CHECK(answer->header.kind == frame_kind::refuse);
    CHECK(p.accepts->current_state() == state::refused);
    CHECK(p.accepts->why() == l.code);
    static_cast<void>(p.connects->arrived(copy(*answer)));
    CHECK(p.connects->current_state() == state::refused);
    CHECK(p.connects->why() == l.code);
  }
}

TEST_CASE("handshake: a lie in the challenge is noticed, too") {
  const lie lies[] = {
      {"a later version", [](auto& j) { j["weft"] = wire_version + 1; }, errc::version_mismatch},
      {"an unknown purpose", [](auto& j) { j["for"] = "zip"; }, errc::version_mismatch},
      {"another's rank", [](auto& j) { j["rank"] = 0; }, errc::wrong_peer},
      {"our own rank", [](auto& j) { j["rank"] = 2; }, errc::wrong_peer},
      {"for another", [](auto& j) { j["to"] = 0; }, errc::wrong_peer},
      {"another incarnation", [](auto& j) { j["incarnation"] = id128{5, 9}.text(); },
       errc::wrong_peer},
      {"another nonce", [](auto& j) { j["nonce"] = id128{5, 9}.text(); }, errc::unauthenticated},
      {"no proof", [](auto& j) { j.erase("proof"); }, errc::protocol_error},
      {"an empty proof", [](auto& j) { j["proof"] = ""; }, errc::unauthenticated},
  };
  for (const lie& l : lies) {
    pair p;
    const std::string what = l.what;
    CAPTURE(what);
    auto challenge = p.accepts->arrived(p.connects->hello());
    REQUIRE(challenge);
    CHECK_FALSE(p.connects->arrived(changed(*challenge, l.tell)));
    CHECK(p.connects->current_state() == state::refused);
    CHECK(p.connects->why() == l.code);
  }
}

TEST_CASE("handshake: another wire version is told so in a frame that it can read as that") {
  pair p;
  const error why(errc::version_mismatch, "the peer speaks wire version 9");
  const auto answer = p.accepts->failed(why);
  REQUIRE(answer);
  CHECK(answer->header.kind == frame_kind::refuse);
  CHECK(p.accepts->current_state() == state::refused);
  CHECK_FALSE(p.connects->failed(why));
  CHECK(p.connects->current_state() == state::refused);
  CHECK(p.connects->why() == errc::version_mismatch);
  pair q;
  CHECK_FALSE(q.accepts->failed(error(errc::peer_died, "gone")));  // nobody listens
  CHECK(q.accepts->current_state() == state::refused);
  CHECK_FALSE(q.accepts->arrived(q.connects->hello()));  // over is over
  CHECK(q.accepts->why() == errc::peer_died);
}

TEST_CASE("handshake: bytes that are no greeting") {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string(3900, '['), std::string(3900, '{'), std::string(100, '\0'),
        R"({"weft":)" + std::string(3800, '9') + "}", std::string(R"({"weft":"1"})"),
        R"({"weft":1,"weft":)" + std::string(1900, '[') + std::string(1900, ']') + "}",
        std::string("\xff\xfe\xfd")}) {
    for (const frame_kind kind : {frame_kind::hello, frame_kind::challenge, frame_kind::proof,
                                  frame_kind::welcome, frame_kind::ready, frame_kind::refuse}) {
      pair p;
      CAPTURE(text);
      static_cast<void>(p.accepts->arrived(with_text(kind, text)));
      CHECK(p.accepts->current_state() == state::refused);
      static_cast<void>(p.connects->arrived(with_text(kind, text)));
      CHECK(p.connects->current_state() == state::refused);
      pair q;  // and in the second place
      auto challenge = q.accepts->arrived(q.connects->hello());
      static_cast<void>(q.accepts->arrived(with_text(kind, text)));
      CHECK(q.accepts->current_state() == state::refused);
      static_cast<void>(q.connects->arrived(std::move(*challenge)));
      static_cast<void>(q.connects->arrived(with_text(kind, text)));
      // The welcome's content is not looked at: who sends it has proved itself.
      CHECK((q.connects->current_state() == state::accepted) == (kind == frame_kind::welcome));
    }
  }
}

TEST_CASE("handshake: every prefix of every frame is refused") {
  pair p;
  const frame hello = p.connects->hello();
  auto challenge = p.accepts->arrived(copy(hello));
  const std::string first = text_of(hello);
  const std::string second = text_of(*challenge);
  for (std::size_t n = 0; n < first.size(); ++n) {
    pair q;
    static_cast<void>(q.accepts->arrived(with_text(frame_kind::hello, first.substr(0, n))));
    CHECK(q.accepts->why() == errc::protocol_error);
  }
  for (std::size_t n = 0; n < second.size(); ++n) {
    pair q;
    static_cast<void>(q.connects->arrived(with_text(frame_kind::challenge, second.substr(0, n))));
    CHECK(q.connects->why() == errc::protocol_error);
  }
}

TEST_CASE("handshake: frames in any other order are refused") {
  const frame_kind kinds[] = {frame_kind::hello,   frame_kind::challenge, frame_kind::proof,
                              frame_kind::welcome, frame_kind::ready,     frame_kind::refuse,
                              frame_kind::request, frame_kind::control,   frame_kind::rref,
                              frame_kind::reply,   frame_kind::window,    frame_kind::ping};
  // What is right in each place, by the frames that came before.
  struct place {
    int frames_before;
    frame_kind right;
  };
  for (const frame_kind kind : kinds) {
    CAPTURE(static_cast<int>(kind));
    for (const place& at :
         {place{0, frame_kind::hello}, place{1, frame_kind::proof}, place{2, frame_kind::ready}}) {
      if (kind == at.right) continue;
      pair p;
      if (at.frames_before > 0) {
        auto challenge = p.accepts->arrived(p.connects->hello());
        if (at.frames_before > 1) {
          static_cast<void>(p.accepts->arrived(*p.connects->arrived(std::move(*challenge))));
          static_cast<void>(p.accepts->welcome());
        }
      }
      const auto answer = p.accepts->arrived(with_text(kind, "{}"));
      CHECK(p.accepts->current_state() == state::refused);
      CHECK(p.accepts->why() == errc::protocol_error);
      REQUIRE(answer);
      CHECK(answer->header.kind == frame_kind::refuse);
    }
    for (const place& at : {place{0, frame_kind::challenge}, place{1, frame_kind::welcome}}) {
      if (kind == at.right || kind == frame_kind::refuse) continue;
      pair p;
      auto challenge = p.accepts->arrived(p.connects->hello());
      if (at.frames_before == 1) static_cast<void>(p.connects->arrived(std::move(*challenge)));
      CHECK_FALSE(p.connects->arrived(with_text(kind, "{}")));
      CHECK(p.connects->current_state() == state::refused);
      CHECK(p.connects->why() == errc::protocol_error);
    }
  }
}

TEST_CASE("handshake: who proved itself waits for the answer before it says more") {
  pair p;
  auto challenge = p.accepts->arrived(p.connects->hello());
  auto proof = p.connects->arrived(std::move(*challenge));
  static_cast<void>(p.accepts->arrived(std::move(*proof)));
  REQUIRE(p.accepts->current_state() == state::proven);
  const auto answer = p.accepts->arrived(with_text(frame_kind::request, "{}"));
  REQUIRE(answer);
  CHECK(answer->header.kind == frame_kind::refuse);
  CHECK(p.accepts->current_state() == state::refused);
}

// An attacker without the token, with everything that was ever said between these processes, and
// with one of them, rank 1, at hand: it accepts the attacker's connections, and its own calls to
// others reach the attacker. Any frame may go to any of its handshakes, also what they answered.

/// Everything said in one whole handshake between `from` and `to`, recorded on the wire.
void record(std::uint32_t from, std::uint32_t to, std::uint64_t nonces, std::vector<frame>& out) {
  const membership a = three(from);
  const membership b = three(to);
  random_source first = counting(nonces);
  random_source second = counting(nonces + 20);
  handshake connects(a, to, first);
  handshake accepts(b, second);
  out.push_back(connects.hello());
  out.push_back(*accepts.arrived(copy(out.back())));
  out.push_back(*connects.arrived(copy(out.back())));
  static_cast<void>(accepts.arrived(copy(out.back())));
  out.push_back(accepts.welcome());
  out.push_back(*connects.arrived(copy(out.back())));
}

/// The handshakes of rank 1 that the attacker has a hand in.
struct victim {
  static constexpr std::size_t sessions = 5;
  victim() {
    random_source random = counting(1000);
    for (int i = 0; i < 3; ++i) all.push_back(std::make_unique<handshake>(me, random));
    for (const std::uint32_t to : {0u, 2u}) {
      all.push_back(std::make_unique<handshake>(me, to, random));
    }
  }
  membership me = three(1);
  std::vector<std::unique_ptr<handshake>> all;
};

struct move {
  std::size_t session;
  std::size_t said;  ///< index in what was recorded, and then in what the attacker has learnt
};

/// Plays the moves; what the attacker has learnt beside what was recorded.
std::vector<frame> play(victim& v, const std::vector<frame>& recorded,
                        const std::vector<move>& moves) {
  std::vector<frame> learnt;
  for (const std::size_t s : {3u, 4u}) learnt.push_back(v.all[s]->hello());
  for (const move& m : moves) {
    const bool old = m.said < recorded.size();
    const frame& said = old ? recorded[m.said] : learnt[m.said - recorded.size()];
    if (auto answer = v.all[m.session]->arrived(copy(said))) learnt.push_back(std::move(*answer));
  }
  return learnt;
}

TEST_CASE("handshake: an attacker without the token gets in by no sequence of recorded frames") {
  std::vector<frame> recorded;
  std::uint64_t nonces = 0;
  for (std::uint32_t from = 0; from < 3; ++from) {
    for (std::uint32_t to = 0; to < 3; ++to) {
      if (from != to) record(from, to, nonces += 100, recorded);
    }
  }
  recorded.push_back(with_text(frame_kind::welcome, "{}"));
  recorded.push_back(with_text(frame_kind::request, "{}"));
  std::size_t tried = 0;
  std::size_t answered = 0;
  // A handshake that was refused takes part no more, so only moves that are answered lead on.
  std::vector<std::vector<move>> open{{}};
  while (!open.empty()) {
    const std::vector<move> before = std::move(open.back());
    open.pop_back();
    victim start;
    const std::size_t known = recorded.size() + play(start, recorded, before).size();
    for (std::size_t s = 0; s < victim::sessions; ++s) {
      if (start.all[s]->current_state() != state::waiting) continue;
      for (std::size_t said = 0; said < known; ++said) {
        std::vector<move> moves = before;
        moves.push_back({s, said});
        victim v;
        static_cast<void>(play(v, recorded, moves));
        ++tried;
        const state now = v.all[s]->current_state();
        if (now == state::waiting) {
          ++answered;
          open.push_back(std::move(moves));
        }
        CHECK(now != state::proven);
        CHECK(now != state::accepted);
      }
    }
  }
  CHECK(answered > 10);  // hellos are heard; nothing after them
  CHECK(tried > 1000);
  MESSAGE(tried << " sequences, " << answered << " of them with an answer");
}

TEST_CASE("handshake: ... but by passing on fresh answers of a member it does, as a wire would") {
  // The model above would notice: here the attacker has a live member at hand as well.
  const membership me = three(1);
  const membership other = three(2);
  random_source random = counting(1);
  handshake accepts(me, random);
  handshake connects(other, 1, random);
  auto challenge = accepts.arrived(connects.hello());
  auto proof = connects.arrived(std::move(*challenge));
  static_cast<void>(accepts.arrived(std::move(*proof)));
  CHECK(accepts.current_state() == state::proven);
}

TEST_CASE(
    "handshake: a JSON object has the members at its top, each as it came last, and no others") {
  using weft::engine::json_object;
  const auto of = [](const std::string& text) {
    return json_object(with_text(frame_kind::hello, text));
  };
  const auto number_in = [&](const std::string& text) -> std::int64_t {
    const json_object read = of(text);
    try {
      return read.number("k");
    } catch (const rpc_error& e) {
      CHECK(e.error() == errc::protocol_error);
      return -1;
    }
  };
  CHECK(number_in(R"({"k":3})") == 3);
  CHECK(number_in(R"({"k":"a","x":2,"k":1})") == 1);
  CHECK(number_in(R"({"k":2147483647})") == 2147483647);
  CHECK(number_in(R"({"x":)" + std::string(500, '[') + std::string(500, ']') + R"(,"k":1})") == 1);
  for (const char* none :
       {R"({})", R"({"k":1,"k":"a"})", R"({"k":1,"k":{"k":2}})", R"({"x":{"k":7}})",
        R"({"x":[{"k":7}]})", R"({"k":[7]})", R"({"k":-0})", R"({"k":-1})", R"({"k":1.0})",
        R"({"k":true})", R"({"k":null})", R"({"k":2147483648})", R"({"k":18446744073709551616})",
        R"({"k\u0000":3})", R"({"K":3})", R"({"":3})"}) {
    CAPTURE(none);
    CHECK(number_in(none) == -1);
  }
  CHECK(of(R"({"k":1,"k":"a"})").text("k") == "a");
  CHECK_THROWS_AS(static_cast<void>(of(R"({"k":["a"]})").text("k")), rpc_error);

  using texts = std::vector<std::string>;
  CHECK(of(R"({"k":[]})").texts("k").empty());
  CHECK(of(R"({"k":["a","b"]})").texts("k") == texts{"a", "b"});
  CHECK(of(R"({"k":["a",1],"k":["b"]})").texts("k") == texts{"b"});
  CHECK(of(R"({"x":["a",{"k":["c"]}],"k":["b"]})").texts("k") == texts{"b"});
  for (const char* mixed : {R"({"k":["a",1]})", R"({"k":[["a"]]})", R"({"k":[{"k":"a"}]})",
                            R"({"k":["a",null]})", R"({"k":["b"],"k":[1]})"}) {
    CAPTURE(mixed);
    CHECK_THROWS_WITH_AS(static_cast<void>(of(mixed).texts("k")),
                         doctest::Contains("no list of texts"), rpc_error);
  }
  CHECK_THROWS_WITH_AS(static_cast<void>(of(R"({"k":"a"})").texts("k")),
                       doctest::Contains("without a list"), rpc_error);

  for (const std::string& no_object :
       {std::string(), std::string("3"), std::string(R"("k")"), std::string("null"),
        std::string(R"([{"k":1}])"), std::string(R"({"k":1}x)"), std::string(R"({"k":1)"),
        std::string(R"({"k":1e400})"), std::string(R"({"k")") + '\0' + ":1}",
        std::string(2000, '[')}) {
    CAPTURE(no_object);
    CHECK_THROWS_WITH_AS(of(no_object), doctest::Contains("not a JSON object"), rpc_error);
  }
}

}  // namespace handshakes
