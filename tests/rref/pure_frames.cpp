// SPDX-License-Identifier: BSL-1.0
// What is said of references, byte by byte: wire_page.py builds the same from the words of the wire
// page.
#include <weft/engine/services/rref_service.hpp>
#include <weft/rref/ledger_wire.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/rref/service.hpp>

#include <array>
#include <atomic>
#include <core/bounded_wait.hpp>
#include <rpc/real_worker.hpp>
#include <rref/gate.hpp>
#include <string>
#include <string_view>
#include <thread>

namespace rref_frames {

using namespace weft::testing;
using weft::rref_service;
using weft::worker;

constexpr std::string_view make_request =
    "57454654040400000300000007000000ed78f2e0d2457695dd3542eb00879303"
    "0000000000000000000000000000000001000000250000000400000000000000"
    "07000000020000001d0000000200000000010000000100000000000000010000000000000000000000";
constexpr std::string_view make_reply =
    "5745465404050000030000000700000000040000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view created =
    "5745465404100000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000002800000000000000"
    "02000000010000000000000001000000010000000000000001000000000000000000000000000000";
constexpr std::string_view add_request =
    "57454654040400000400000008000000fe32c6d4a5230c07f9e5ccdd00879303"
    "00000000000000000000000000000000010000001d0000000400000000000000"
    "050000000200000015000000010000000001000000010000000000000000000000";
constexpr std::string_view add_reply =
    "5745465404050000040000000800000000040000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000400000000000000"
    "0c000000";
constexpr std::string_view give_request =
    "574546540404000004000000090000009470300d01fab9198e89e0be00879303"
    "0000000000000000000000000000000001000000250000000400000000000000"
    "00000000020000001d0000000001000000000000000100000001000000000000000100000000000000";
constexpr std::string_view give_reply =
    "5745465404050000040000000900000000040000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000400000000000000"
    "01000000";
constexpr std::string_view given =
    "5745465404100000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000002800000000000000"
    "04000000010000000000000001000000010000000000000000000000000000000100000000000000";
constexpr std::string_view dropped =
    "5745465404100000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000002800000000000000"
    "01000000010000000000000001000000010000000000000002000000000000000000000000000000";
constexpr std::string_view forgotten =
    "5745465404100000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000002800000000000000"
    "03000000010000000000000001000000010000000000000002000000000000000000000000000000";
constexpr std::string_view add_message =
    "00000000010000000102030405060708090a0b0c0d0e0f1002000000000000000300000000000000";
constexpr std::string_view del_message =
    "01000000010000000102030405060708090a0b0c0d0e0f1004000000000000000000000000000000";
constexpr std::string_view added_message =
    "02010000010000000102030405060708090a0b0c0d0e0f1005000000000000000000000000000000";
constexpr std::string_view deled_message =
    "03000000010000000102030405060708090a0b0c0d0e0f1006000000000000000000000000000000";
constexpr std::string_view xack_message =
    "04000000010000000102030405060708090a0b0c0d0e0f1000000000000000000700000000000000";

struct counter {
  int value;
  explicit counter(int v) : value(v) {}
  weft::immediate<int> add(int x) { return value += x; }
};
weft::immediate<int> give(const weft::rref<counter>&) { return 1; }

constexpr std::uint32_t owner = 0;
constexpr std::uint32_t creator = 1;

std::atomic<bool> all_forgotten{false};
asio::awaitable<void> serve(worker&) { co_return; }
asio::awaitable<void> create(worker& me) {
  {
    const auto made = me.peer(owner).make<counter>(7);
    CHECK(co_await made.call<&counter::add>(5) == 12);
    CHECK(co_await me.peer(owner).call<&give>(made) == 1);
  }
  CHECK(co_await eventually([&me] { return me.use<rref_service>().idle(); }));
  all_forgotten = true;
}

TEST_CASE("rref frames: a reference from its creation to its end") {
  for (const std::uint32_t real : {creator, owner}) {
    CAPTURE(real);
    real_worker<rref_service> w(real, 2, real == creator ? create : serve);
    {
      auto played = w.meet(1 - real);
      played.play({{creator, make_request},
                   {owner, created},
                   {owner, make_reply},
                   {creator, add_request},
                   {owner, add_reply},
                   {creator, give_request},
                   {owner, given},
                   {owner, give_reply},
                   {creator, dropped},
                   {owner, forgotten}});
      // It is heard before the other one is lost, which would be forgotten with all it had.
      bounded_wait until("the last frame was heeded");
      while (until.not_yet(real == owner || all_forgotten)) std::this_thread::yield();
    }
    static_cast<void>(w.end());
  }
}

TEST_CASE("rref frames: every kind of message") {
  using namespace weft::rref_protocol;
  const weft::rref_id id{0x04030201, 0x08070605, 0x100f0e0d0c0b0a09};
  struct sample {
    message what;
    std::string_view bytes;
  };
  for (const sample& s :
       {sample{{message_kind::add, cause::none, first_epoch, id, 2, 3}, add_message},
        sample{{message_kind::del, cause::none, first_epoch, id, 4, 0}, del_message},
        sample{{message_kind::added, cause::lost, first_epoch, id, 5, 0}, added_message},
        sample{{message_kind::deled, cause::none, first_epoch, id, 6, 0}, deled_message},
        sample{{message_kind::xack, cause::none, first_epoch, id, 0, 7}, xack_message}}) {
    std::array<std::byte, message_bytes> bytes{};
    REQUIRE(encode(s.what, bytes));
    CHECK(weft_test::hex(bytes) == std::string(s.bytes));
    CHECK((decode_message(weft_test::bytes_in(s.bytes)) == s.what));
  }
}

}  // namespace rref_frames
