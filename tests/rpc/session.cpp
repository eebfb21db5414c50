// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/session.hpp>

#include <doctest/doctest.h>

#include <string>

namespace session_rules {

using namespace weft;

membership three() {
  membership all;
  all.rank = 1;
  all.token = {0xabc, 0xdef};
  for (std::uint32_t r = 0; r < 3; ++r) {
    all.members.push_back({"w" + std::to_string(r), "", {5, r}, {}});
  }
  return all;
}
/// What rank 2 says to rank 1.
greeting hello() {
  membership all = three();
  all.rank = 2;
  return introduce(all, 1);
}
frame with_text(const std::string& text) {
  message m;
  m.payload().raw(text.data(), text.size());
  frame_header h;
  h.kind = frame_kind::hello;
  return std::move(m).finish(h);
}

TEST_CASE("session: a greeting says who speaks to whom, and survives the wire") {
  const greeting said = hello();
  CHECK(said.rank == 2);
  CHECK(said.to == 1);
  CHECK(said.token == id128{0xabc, 0xdef}.text());
  CHECK(said.incarnation == id128{5, 2}.text());
  const frame f = greeting_frame(frame_kind::hello, said);
  CHECK(f.header.kind == frame_kind::hello);
  CHECK(f.head.size() <= default_limits.handshake);
  const auto read = read_greeting(f);
  REQUIRE(read);
  CHECK(read->version == said.version);
  CHECK(read->features.empty());
  CHECK(read->token == said.token);
  CHECK(read->rank == said.rank);
  CHECK(read->to == said.to);
  CHECK(read->incarnation == said.incarnation);
}

TEST_CASE("session: who is a member is let in") {
  CHECK(judge(three(), hello(), shows_token::yes));
  greeting answer = hello();
  answer.token.clear();
  CHECK(judge(three(), answer, shows_token::no));
  CHECK_FALSE(judge(three(), answer, shows_token::yes));
}

TEST_CASE("session: who is not is refused with a typed reason") {
  struct lie {
    void (*tell)(greeting&);
    errc code;
    const char* names;
  };
  const lie lies[] = {
      {[](greeting& g) { g.version = 2; }, errc::version_mismatch, "version 2"},
      {[](greeting& g) { g.version = 0; }, errc::version_mismatch, "version 0"},
      {[](greeting& g) { g.features = {"zip"}; }, errc::version_mismatch, "'zip'"},
      {[](greeting& g) { g.token[3] ^= 1; }, errc::unauthenticated, "token"},
      {[](greeting& g) { g.token.clear(); }, errc::unauthenticated, "token"},
      {[](greeting& g) { g.token = "not hexadecimal"; }, errc::unauthenticated, "token"},
      {[](greeting& g) { g.rank = 3; }, errc::wrong_peer, "rank 3"},
      {[](greeting& g) { g.rank = 1; }, errc::wrong_peer, "rank 1"},
      {[](greeting& g) { g.to = 0; }, errc::wrong_peer, "rank 0"},
      {[](greeting& g) { g.rank = 0; }, errc::wrong_peer, "another process"},
      {[](greeting& g) { g.incarnation = id128{5, 9}.text(); }, errc::wrong_peer,
       "another process"},
      {[](greeting& g) { g.incarnation = "x"; }, errc::wrong_peer, "another process"},
  };
  for (const lie& l : lies) {
    greeting g = hello();
    l.tell(g);
    const auto judged = judge(three(), g, shows_token::yes);
    CAPTURE(l.names);
    REQUIRE_FALSE(judged);
    CHECK(judged.error() == l.code);
    CHECK(judged.error().detail().text.find(l.names) != std::string::npos);
  }
}

TEST_CASE("session: a refusal never repeats more than a little of what a stranger said") {
  greeting g = hello();
  g.features = {std::string(3900, 'x')};
  const auto judged = judge(three(), g, shows_token::yes);
  REQUIRE_FALSE(judged);
  CHECK(refusal_frame(judged.error()).head.size() < 1024);
}

TEST_CASE("session: what is no greeting is a protocol error that says why") {
  const std::string good =
      R"({"weft":1,"features":[],"token":"","rank":0,"to":1,"incarnation":""})";
  CHECK(read_greeting(with_text(good)));
  const char* bad[] = {
      "",
      "null",
      "[1,2]",
      "{\"weft\":1",
      R"({"features":[],"token":"","rank":0,"to":1,"incarnation":""})",
      R"({"weft":"1","features":[],"token":"","rank":0,"to":1,"incarnation":""})",
      R"({"weft":-1,"features":[],"token":"","rank":0,"to":1,"incarnation":""})",
      R"({"weft":1,"features":[],"token":"","rank":1e9,"to":1,"incarnation":""})",
      R"({"weft":1,"features":[],"token":"","rank":4294967296,"to":1,"incarnation":""})",
      R"({"weft":1,"features":[],"token":"","rank":0,"incarnation":""})",
      R"({"weft":1,"features":[],"token":7,"rank":0,"to":1,"incarnation":""})",
      R"({"weft":1,"features":[],"token":"","rank":0,"to":1})",
      R"({"weft":1,"features":{},"token":"","rank":0,"to":1,"incarnation":""})",
      R"({"weft":1,"features":[1],"token":"","rank":0,"to":1,"incarnation":""})",
      R"({"weft":1,"token":"","rank":0,"to":1,"incarnation":""})",
  };
  for (const char* text : bad) {
    CAPTURE(text);
    const auto read = read_greeting(with_text(text));
    REQUIRE_FALSE(read);
    CHECK(read.error() == errc::protocol_error);
    CHECK(read.error().detail().text.find("a greeting") != std::string::npos);
  }
  CHECK_FALSE(read_greeting(with_text(std::string("\xff\xfe{", 3))));
}

TEST_CASE("session: a greeting may say more than is understood") {
  CHECK(read_greeting(with_text(
      R"({"weft":1,"features":[],"token":"","rank":0,"to":1,"incarnation":"","later":[{}]})")));
}

TEST_CASE("session: refusals keep their reason; unreadable ones are protocol errors") {
  const frame f = refusal_frame(error(errc::unauthenticated, "the job token is wrong"));
  CHECK(f.header.kind == frame_kind::refuse);
  const error why = read_refusal(f);
  CHECK(why == errc::unauthenticated);
  CHECK(why.detail().text == "the job token is wrong");
  CHECK(read_refusal(refusal_frame(error())) == errc::protocol_error);
  CHECK(read_refusal(with_text("nonsense")) == errc::protocol_error);
  CHECK(read_refusal(with_text("")) == errc::protocol_error);
}

TEST_CASE("membership: finds by name, or lists the names") {
  const membership all = three();
  CHECK(all.find("w2") == 2u);
  CHECK(all.self().name == "w1");
  const auto none = all.find("w9");
  REQUIRE_FALSE(none);
  CHECK(none.error() == errc::unknown_peer);
  CHECK(none.error().detail().text.find("'w9'") != std::string::npos);
  CHECK(none.error().detail().text.find("w0, w1, w2") != std::string::npos);
}

}  // namespace session_rules
