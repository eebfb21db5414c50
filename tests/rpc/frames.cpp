// SPDX-License-Identifier: BSL-1.0
// Frames byte by byte: what a worker says and understands on the wire is what wire_page.py builds
// from the words of the wire page.
#include <weft/core/event.hpp>
#include <weft/engine/link/handshake.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/wire/bulk.hpp>
#include <weft/wire/error_codec.hpp>

#include <chrono>
#include <limits>
#include <rpc/cluster.hpp>
#include <rpc/real_worker.hpp>
#include <rref/gate.hpp>
#include <stdexcept>
#include <string>
#include <system_error>

namespace wire_frames {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::errc;
using weft::worker;
using weft::engine::handshake;
using weft_test::frame_in;
using weft_test::hex;

constexpr std::string_view hello =
    "5745465404010000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000098000000000000007b226665617475726573223a5b2262756c6b225d2c22666f"
    "72223a2263616c6c73222c22696e6361726e6174696f6e223a22303030303030303030303030303030353030"
    "3030303030303030303030303031222c226e6f6e6365223a2230303030303030303030303030303936303030"
    "30303030303030303030303937222c2272616e6b223a312c22746f223a302c2277656674223a347d";
constexpr std::string_view challenge =
    "57454654040c0000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000e3000000000000007b226665617475726573223a5b2262756c6b225d2c22666f"
    "72223a2263616c6c73222c22696e6361726e6174696f6e223a22303030303030303030303030303030353030"
    "3030303030303030303030303030222c226e6f6e6365223a2230303030303030303030303030303634303030"
    "30303030303030303030303635222c2270726f6f66223a226337306138366463313031336161366135376536"
    "3966313938383536396265353431646266363136613337643863656330303435623433666537626139313164"
    "222c2272616e6b223a302c22746f223a312c2277656674223a347d";
constexpr std::string_view proof =
    "57454654040d0000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000004c000000000000007b2270726f6f66223a223432623831376139306566353135"
    "6266353265633336656163373861333063373631373433373638343632666538343730663961616335646662"
    "303737643137227d";
constexpr std::string_view welcome =
    "5745465404020000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000200000000000000"
    "7b7d";
constexpr std::string_view ready =
    "57454654040e0000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000200000000000000"
    "7b7d";
constexpr std::string_view refusal =
    "5745465404030000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000003700000000000000"
    "010d0000000000000000000000000000000000000000000000000000000000070000006e6f7420796f750000"
    "0000000000000000000000";
constexpr std::string_view add_request =
    "57454654040400000300000007000000aaaa795e17996b0670aed81f00879303"
    "0000000000000000000000000000000000000000000000000800000000000000"
    "0200000003000000";
constexpr std::string_view add_reply =
    "5745465404050000030000000700000000040000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000400000000000000"
    "05000000";
constexpr std::string_view note_post =
    "574546540404010000000000000000001fa58c794a8c4897cacaed2300000000"
    "0000000000000000000000000000000000000000000000000700000000000000"
    "03000000627965";
constexpr std::string_view never_request =
    "57454654040400000300000008000000ab9da0775c19c44e930a622900879303"
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view never_cancel =
    "5745465404070000030000000800000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view never_failure =
    "5745465404060000030000000800000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000004a00000000000000"
    "010200000002020000000000000000000000000000000000000000000000001a0000007468652066756e6374"
    "696f6e207761732063616e63656c6c656400000000000000000000000000";
constexpr std::string_view too_much_request =
    "57454654040400000400000009000000aaaa795e17996b0670aed81f00879303"
    "0000000000000000000000000000000000000000000000000800000000000000"
    "ffffff7f01000000";
constexpr std::string_view too_much_failure =
    "5745465404060000040000000900000000040000000000000000000000000000"
    "0000000000000000000000000000000000000000000000005300000000000000"
    "0107000000030300000000000000000000000000000000000000000000000009000000746f6f206c61726765"
    "07000000776f726b65723000000000130000007374643a3a6f766572666c6f775f6572726f7200";
constexpr std::string_view failure_with_cause =
    "5745465404060000030000000700000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000008a00000000000000"
    "01050000000201080706050403020180841e0000000000b80b000000000000100000006e6f20737563682066"
    "756e6374696f6e07000000776f726b6572320a00000067656f3a3a7363616c650a00000067656f3a3a657272"
    "6f72020200000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000";
constexpr std::string_view window_wanted =
    "57454654040a0000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view window_credit =
    "57454654040a0000000000000000000000040000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view ping =
    "5745465404090000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view control_finished =
    "5745465404080000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000900000000000000"
    "010100000000000000";
constexpr std::string_view control_failed =
    "5745465404080000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000001000000000000000"
    "0201000000070000006e6f2064617461";
constexpr std::string_view control_lost =
    "5745465404080000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000001000000000000000"
    "0300000000070000006e6f2064617461";
constexpr std::string_view control_ended =
    "5745465404080000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000900000000000000"
    "040100000000000000";
constexpr std::string_view control_count_1 =
    "5745465404080000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000001100000000000000"
    "0501000000000000000100000000000000";
constexpr std::string_view control_count_2 =
    "5745465404080000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000001100000000000000"
    "0501000000000000000200000000000000";
constexpr std::string_view control_counts_1 =
    "5745465404080000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000002a00000000000000"
    "060100000000000000010000000000000001000000000000000500000000000000000000000000000000";
constexpr std::string_view control_counts_2 =
    "5745465404080000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000002a00000000000000"
    "060100000000000000020000000000000001000000000000000500000000000000000000000000000000";

weft::immediate<int> add(int a, int b) {
  if (a > std::numeric_limits<int>::max() - b) throw std::overflow_error("too large");
  return a + b;
}
weft::immediate<void> note(const std::string&) { return {}; }
asio::awaitable<void> never() {
  const auto nobody_sets_it = weft::make_intrusive<weft::event>();
  co_await weft::event::async_wait(nobody_sets_it, asio::use_awaitable);
}

constexpr std::uint32_t callee = 0;
constexpr std::uint32_t caller = 1;
constexpr std::uint64_t one_request = 1024;  // fills the window

asio::awaitable<void> serve(worker&) { co_return; }
asio::awaitable<void> call(worker& me) {
  const auto to = me.peer(callee);
  CHECK(co_await to.call<&add>(2, 3) == 5);
  to.post<&note>("bye");
  CHECK(co_await to.call<&add>(2, 3) == 5);
  const auto dropped = to.start<&never>();
  const auto e =
      co_await failure_of(to.call<&add>(std::numeric_limits<int>::max(), 1, as_expected));
  CHECK(e == errc::remote_exception);
  CHECK(e.ran() == weft::call_progress::executed);
  CHECK(e.detail().text == "too large");
  CHECK(e.detail().remote_type == "std::overflow_error");
}

TEST_CASE("frames: a caller, a callee, and how their run ends") {
  for (const std::uint32_t real : {caller, callee}) {
    CAPTURE(real);
    real_worker<> w(real, 2, real == caller ? call : serve, one_request);
    {
      auto other = w.meet(1 - real);
      other.play({{caller, add_request},
                  {callee, add_reply},
                  {caller, note_post},
                  {caller, window_wanted},
                  {callee, window_credit},
                  {caller, add_request},
                  {callee, add_reply},
                  {caller, never_request},
                  {caller, window_wanted},
                  {callee, window_credit},
                  {caller, too_much_request},
                  {callee, too_much_failure},
                  {caller, never_cancel},
                  {callee, never_failure}});
      other.play({{caller, control_finished},
                  {callee, control_count_1},
                  {caller, control_counts_1},
                  {callee, control_count_2},
                  {caller, control_counts_2},
                  {callee, control_ended}});
    }
    const auto end = w.end();
    INFO(end.message());
    CHECK_FALSE(end);
  }
}

asio::awaitable<void> fail(worker& me) {
  CHECK(co_await eventually(
      [&me] { return me.link_to(1 - me.rank()).current_state() == weft::link::state::up; }));
  throw std::runtime_error("no data");
}
asio::awaitable<void> wait(worker&) { return never(); }

TEST_CASE("frames: a worker that fails says so, and hears of others") {
  for (const std::uint32_t who : {0u, 1u}) {
    CAPTURE(who);
    const auto failure = who == 0 ? control_lost : control_failed;  // worker 0 decides
    real_worker<> fails(who, 2, fail);
    fails.meet(1 - who).play({{who, failure}});
    CHECK(fails.end() == errc::worker_failed);

    real_worker<> hears(1 - who, 2, wait);
    hears.meet(who).play({{who, failure}});
    const auto end = hears.end();
    CHECK(end == errc::peer_died);
    CHECK(end.detail().peer == "worker" + std::to_string(who));
    CHECK(end.detail().text == "no data");
  }
}

asio::awaitable<void> call_another(worker& me) { co_await me.peer(2).call<&add>(2, 3); }

TEST_CASE(
    "frames: rank 0's word is passed on before a link closes, and believed from whoever leaves") {
  for (const bool passes_on : {true, false}) {
    CAPTURE(passes_on);
    real_worker<> w(1, 3, call_another);
    {
      auto zero = w.meet(0);
      auto other = w.meet(2);
      other.play({{1, add_request}});
      if (passes_on) {
        zero.play({{0, control_lost}});
        other.play({{1, control_lost}});
      } else {
        other.play({{2, control_lost}});
      }
    }
    const auto end = w.end();
    CHECK(end == errc::peer_died);
    CHECK(end.detail().peer == "worker0");
    CHECK(end.detail().text == "no data");
  }
}

TEST_CASE("frames: who says nothing else gives signs of life") {
  real_worker<> w(0, 2, wait);
  w.meet(1).play({{1, ping}, {0, ping}, {1, control_failed}});
  CHECK(w.end() == errc::peer_died);
}

constexpr std::string_view large_request =
    "57454654040404000300000007000000aaaa795e17996b0670aed81f00000000000000000000000000000000"
    "00000000010002001d00000009000000000000000001020304050607080a0000000000000003000000000000"
    "0001000000050000000000000000";
constexpr std::string_view large_of_request =
    "57454654040b00000300000007000000aaaa795e17996b0670aed81f04000000000000000000000000000000"
    "00000000010002001d00000009000000000000000001020304050607080a0000000000000003000000000000"
    "000100000005000000000000000001010101010101010101020202";
constexpr std::string_view large_reply =
    "5745465404050400030000000700000000040000000000000000000000000000000000000000000000000000"
    "00000000010002001d00000009000000000000000001020304050607080a0000000000000003000000000000"
    "0001000000050000000000000000";
constexpr std::string_view large_of_reply =
    "57454654040b0000030000000700000000000000000000000000000005000000000000000000000000000000"
    "00000000010002001d00000000000000000000000a0000000000000003000000000000000100000005000000"
    "000000000001010101010101010101020202";

struct buffer final : weft::blob_owner {
  std::vector<std::byte> bytes;
};
/// With two buffers.
weft::frame with_buffers(const weft::frame_header& as) {
  weft::message m;
  for (std::uint8_t i = 0; i < 9; ++i) m.payload().number(i);
  for (const auto& [size, value] : {std::pair{10, 1}, {3, 2}}) {
    auto owner = weft::make_intrusive<buffer>();
    owner->bytes.assign(static_cast<std::size_t>(size), static_cast<std::byte>(value));
    std::byte* const data = owner->bytes.data();
    m.add_blob({data, owner->bytes.size(), std::move(owner)});
  }
  constexpr std::byte descriptors[5] = {};
  m.section(weft::section_kind::tensors, descriptors);
  return std::move(m).finish(as);
}

TEST_CASE("frames: large tensors, apart from their request or reply") {
  for (const auto& [head, tensors] :
       {std::pair{large_request, large_of_request}, {large_reply, large_of_reply}}) {
    weft::frame f = with_buffers(frame_in(head).header);
    CHECK(hex(weft::split_bulk(f)) == std::string(tensors));
    CHECK(hex(f) == std::string(head));
  }
}

weft::membership two(std::uint32_t rank) {
  weft::membership all;
  all.rank = rank;
  all.token = {0xabc, 0xdef};
  for (std::uint32_t r = 0; r < 2; ++r) all.members.push_back({"", "", {5, r}, {}});
  return all;
}
weft::random_source counting(std::uint64_t from) {
  return [next = from]() mutable { return next++; };
}

TEST_CASE("frames: the handshake") {
  const auto zero = two(0);
  const auto one = two(1);
  auto first = counting(100);
  auto second = counting(150);
  handshake accepts(zero, first);
  handshake connects(one, 0, second);
  CHECK(hex(connects.hello()) == std::string(hello));
  const auto challenged = accepts.arrived(frame_in(hello));
  REQUIRE(challenged);
  CHECK(hex(*challenged) == std::string(challenge));
  const auto proved = connects.arrived(frame_in(challenge));
  REQUIRE(proved);
  CHECK(hex(*proved) == std::string(proof));
  CHECK_FALSE(accepts.arrived(frame_in(proof)).has_value());
  REQUIRE(accepts.current_state() == handshake::state::proven);
  CHECK(hex(accepts.welcome()) == std::string(welcome));
  const auto is_ready = connects.arrived(frame_in(welcome));
  REQUIRE(is_ready);
  CHECK(hex(*is_ready) == std::string(ready));
  CHECK_FALSE(accepts.arrived(frame_in(ready)).has_value());
  CHECK(accepts.current_state() == handshake::state::accepted);
  CHECK(connects.current_state() == handshake::state::accepted);

  handshake refuses(zero, first);
  handshake refused(one, 0, second);
  CHECK(hex(refuses.refuse(weft::error(errc::wrong_peer, "not you"))) == std::string(refusal));
  CHECK_FALSE(refused.arrived(frame_in(refusal)).has_value());
  CHECK(refused.why() == errc::wrong_peer);
  CHECK(refused.why().detail().text == "not you");
}

TEST_CASE("frames: all that an error holds") {
  using weft::call_progress;
  using weft::origin;
  const auto cause = std::make_error_code(std::errc::no_such_file_or_directory);
  const auto e = weft::error(errc::unknown_function, "no such function",
                             call_progress::not_executed, origin::remote_runtime)
                     .with([&](weft::error_detail& d) {
                       d.peer = "worker2";
                       d.function = "geo::scale";
                       d.incarnation = 0x0102030405060708;
                       d.deadline = 2s;
                       d.elapsed = 3ms;
                       d.remote_type = "geo::error";
                       d.cause_code = cause;
                     });
  weft::message m;
  weft::codec<weft::error>::encode(m.payload(), e);
  weft::frame_header header;
  header.kind = weft::frame_kind::failure;
  header.call = frame_in(failure_with_cause).header.call;
  CHECK(hex(std::move(m).finish(header)) == std::string(failure_with_cause));

  const auto back = weft::engine::refusal_in(frame_in(failure_with_cause));
  CHECK(back == errc::unknown_function);
  CHECK(back.ran() == call_progress::not_executed);
  CHECK(back.detail().from == origin::remote_runtime);
  CHECK(back.detail().text == e.detail().text);
  CHECK(back.detail().peer == e.detail().peer);
  CHECK(back.detail().function == e.detail().function);
  CHECK(back.detail().incarnation == e.detail().incarnation);
  CHECK((back.detail().deadline == 2s));
  CHECK((back.detail().elapsed == 3ms));
  CHECK(back.detail().remote_type == e.detail().remote_type);
  CHECK((back.cause().code() == cause));
}

}  // namespace wire_frames
