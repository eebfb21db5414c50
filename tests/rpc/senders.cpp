// SPDX-License-Identifier: BSL-1.0
// Whatever is thrown while a message is made reaches its caller, and costs nobody else anything.
#include <weft/rpc/peer.hpp>

#include <atomic>
#include <new>
#include <rpc/cluster.hpp>
#include <stdexcept>
#include <string>

namespace senders {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::call_progress;
using weft::errc;
using weft::immediate;
using weft::worker;

enum class how : std::uint8_t { well, std_exception, no_memory, own_type, rpc_error };
struct own {};
[[noreturn]] void fail(how h) {
  switch (h) {
  case how::std_exception:
    throw std::out_of_range("the value is odd");
  case how::no_memory:
    throw std::bad_alloc();
  case how::own_type:
    throw own{};
  default:
    throw weft::rpc_error(errc::invalid_argument, "the value says no");
  }
}

/// A value whose own functions throw where they are told to.
struct fragile {
  how in_encode = how::well;
  how in_decode = how::well;
};
}  // namespace senders

template <>
struct weft::codec<senders::fragile> {
  static constexpr std::size_t min_size = 2;
  static void encode(writer& w, const senders::fragile& v) {
    w.number(v.in_encode);
    if (v.in_encode != senders::how::well) senders::fail(v.in_encode);
    w.number(v.in_decode);
  }
  static senders::fragile decode(reader& r) {
    senders::fragile v;
    v.in_encode = static_cast<senders::how>(r.number<std::uint8_t>());
    v.in_decode = static_cast<senders::how>(r.number<std::uint8_t>());
    // What is thrown at the caller travels in the other field.
    if (v.in_decode != senders::how::well) senders::fail(v.in_decode);
    return v;
  }
};
template <>
struct weft::structure<senders::fragile> {
  static constexpr std::string_view tag = "senders::fragile 1";
};

namespace senders {

std::atomic<int> received{0};
int take(fragile) { return ++received; }
asio::awaitable<int> take_later(fragile) { co_return ++received; }
fragile give(int in_encode, int in_decode) {
  return {static_cast<how>(in_encode), static_cast<how>(in_decode)};
}
asio::awaitable<fragile> give_later(int in_encode, int in_decode) {
  co_return give(in_encode, in_decode);
}
immediate<fragile> give_here(int in_encode, int in_decode) { return give(in_encode, in_decode); }
int add(int a, int b) { return a + b; }

void check_words(const weft::error& e, how h) {
  INFO(e.message());
  switch (h) {
  case how::std_exception:
    CHECK(e == errc::not_encodable);
    CHECK(e.detail().text == "the value is odd");
    CHECK(e.detail().remote_type == "std::out_of_range");
    break;
  case how::no_memory:
    CHECK(e == errc::resource_exhausted);
    break;
  case how::own_type:
    CHECK(e == errc::not_encodable);
    CHECK(e.detail().text.find("not a std::exception") != std::string::npos);
    break;
  default:
    CHECK(e == errc::invalid_argument);
    CHECK(e.detail().text == "the value says no");
  }
}

constexpr how ways[] = {how::std_exception, how::no_memory, how::own_type, how::rpc_error};

TEST_CASE(
    "sender: what a codec throws is the caller's error, nothing was sent, the next call works") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    for (const std::uint32_t rank : {1u, 0u}) {  // another worker, and oneself
      const auto p = me.peer(rank);
      for (const how h : ways) {
        CAPTURE(static_cast<int>(h));
        received = 0;
        for (const auto& e : {co_await failure_of(p.call<&take>(fragile{h}, as_expected)),
                              co_await failure_of(p.call<&take_later>(fragile{h}, as_expected))}) {
          check_words(e, h);
          CHECK(e.ran() == call_progress::not_sent);
          CHECK(e.detail().peer == "worker" + std::to_string(rank));
          CHECK(e.detail().function.find("senders::take") != std::string::npos);
        }
        try {
          co_await p.call<&take>(fragile{h});
          FAIL("nothing was thrown");
        } catch (const weft::rpc_error& e) {
          check_words(e.error(), h);
        }
        auto started = p.start<&take>(fragile{h});
        try {
          co_await std::move(started);
          FAIL("nothing was thrown");
        } catch (const weft::rpc_error& e) {
          check_words(e.error(), h);
        }
        try {
          p.post<&take>(fragile{h});
          FAIL("nothing was thrown");
        } catch (const weft::rpc_error& e) {
          check_words(e.error(), h);
        }
        CHECK(calls_waiting(me, rank) == 0);
        CHECK(co_await p.call<&add>(20, 22) == 42);
        CHECK(received == 0);
      }
    }
  });
}

TEST_CASE("sender: a result that cannot be encoded is a failure of the call, which was executed") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    for (const std::uint32_t rank : {1u, 0u}) {
      const auto p = me.peer(rank);
      for (const how h : ways) {
        CAPTURE(static_cast<int>(h));
        const int n = static_cast<int>(h);
        for (const auto& e : {co_await failure_of(p.call<&give>(n, 0, as_expected)),
                              co_await failure_of(p.call<&give_later>(n, 0, as_expected)),
                              co_await failure_of(p.call<&give_here>(n, 0, as_expected))}) {
          INFO(e.message());
          CHECK(e);
          CHECK(e.ran() == call_progress::executed);
          check_words(e, h);
        }
        CHECK(co_await p.call<&add>(20, 22) == 42);
      }
    }
  });
}

TEST_CASE("sender: a reply that the caller's codec refuses is the caller's error") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    for (const how h : ways) {
      CAPTURE(static_cast<int>(h));
      const int n = static_cast<int>(h);
      const auto e = co_await failure_of(p.call<&give>(0, n, as_expected));
      check_words(e, h);
      CHECK(e.ran() == call_progress::executed);
      CHECK(e.detail().function == "senders::give");
      CHECK(co_await p.call<&add>(20, 22) == 42);
    }
  });
}

TEST_CASE("sender: an argument that the callee's codec refuses fails the call, not the link") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    received = 0;
    for (const how h : ways) {
      CAPTURE(static_cast<int>(h));
      for (const auto& e :
           {co_await failure_of(p.call<&take>(fragile{how::well, h}, as_expected)),
            co_await failure_of(p.call<&take_later>(fragile{how::well, h}, as_expected))}) {
        check_words(e, h);
        CHECK(e.ran() == call_progress::not_executed);
      }
      CHECK(co_await p.call<&add>(20, 22) == 42);
    }
    CHECK(received == 0);
  });
}

}  // namespace senders
