// SPDX-License-Identifier: BSL-1.0
// Frames of the autograd service, byte by byte: wire_page.py builds the same from the words of the
// wire page. What their messages hold: wave_frames.cpp.
#include <weft/autograd/context.hpp>
#include <weft/autograd/frame.hpp>
#include <weft/autograd/messages.hpp>
#include <weft/engine/services/autograd_service.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/wire/detail/tensor_table.hpp>

#include <ATen/ATen.h>

#include <cstddef>
#include <rpc/real_worker.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace autograd_frames {

using namespace weft::testing;
using weft::worker;
using weft_test::frame_in;
using weft_test::hex;

constexpr std::string_view gradients =
    "5745465404180000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000010002007000000023000000000000001f0000000302000000001000000300000004000000060000"
    "0000000000030000000500080000000000000008000000000000000100000058000000020000000200000006"
    "0100010000000000000000000000000000000000000000020000000000000001000000000000000701000100"
    "00000001000000000000000000000000000000010000000000000001000000000000000000c03f000000c000"
    "00000000000840";
constexpr std::string_view reach_request =
    "57454654040400000300000007000000dc86cac9c51daf5b930a622900879303000000000000000000000000"
    "00000000010000001d0000000000000000000000030000001500000001000000001000000000000000000000"
    "0000000000";
constexpr std::string_view reach_reply =
    "5745465404050000030000000700000000040000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view nothing_request =
    "574546540404000003000000070000005e084e768396c805930a622900879303000000000000000000000000"
    "00000000010000001d0000000000000000000000030000001500000001000000001000000000000000000000"
    "0000000000";
constexpr std::string_view release =
    "5745465404180000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000d0000000000000009000000100100000000100000";
constexpr std::string_view joined =
    "5745465404180000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000001500000000000000110000001101000000001000000100000002000000";

void nothing() {}
asio::awaitable<void> reach(worker& me) { co_await me.peer(2).call<&nothing>(); }

// Worker 1 makes a context, its call to worker 0 leads on to worker 2.
constexpr std::uint32_t below = 0;
constexpr std::uint32_t creator = 1;
constexpr std::uint32_t last = 2;

asio::awaitable<void> serve(worker&) { co_return; }
asio::awaitable<void> create(worker& me) {
  co_await weft::autograd::with_context(me,
                                        [&me](weft::autograd::context) -> asio::awaitable<void> {
                                          co_await me.peer(below).call<&reach>();
                                        });
}

TEST_CASE("autograd frames: the creator of a context hears who joined, and releases it") {
  real_worker<weft::autograd_service> w(creator, 3, create);
  {
    auto first = w.meet(below);
    first.play(
        {{creator, reach_request}, {below, joined}, {below, reach_reply}, {creator, release}});
    w.meet(last).play({{creator, release}});
  }
  static_cast<void>(w.end());  // the others are lost
}

TEST_CASE("autograd frames: who joined and cannot reply any more tells who else did") {
  real_worker<weft::autograd_service> w(below, 3, serve);
  {
    auto first = w.meet(creator);
    first.play({{creator, reach_request}});
    auto other = w.meet(last);
    other.play({{below, nothing_request}});
    first.play({{creator, release}, {below, joined}});
  }
  static_cast<void>(w.end());
}

TEST_CASE("autograd frames: gradients are the tensors of the frame") {
  using namespace weft::autograd;
  const control what{{std::uint64_t{1} << 44 | 2, 3, 4}, grad_message{6, 3, {0b101}}};
  const std::vector<at::Tensor> sent = {at::tensor({1.5F, -2.0F}), at::full({1}, 3, at::kDouble)};
  CHECK(hex(seal(encode(what), weft::default_limits, sent)) == std::string(gradients));

  weft::incoming_message in(frame_in(gradients));
  REQUIRE(in.check().has_value());
  const unsealed got = unseal(in);
  CHECK((decode(got.what) == what));
  REQUIRE(got.tensors.size() == sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    CHECK((got.tensors[i].scalar_type() == sent[i].scalar_type()));
    CHECK(at::equal(got.tensors[i], sent[i]));
  }
}

TEST_CASE("autograd frames: a gradient that is none is refused, not sent") {
  for (const std::size_t none : {0U, 1U, 2U}) {
    std::vector<at::Tensor> given(3, at::ones({2}));
    given[none] = at::Tensor();
    given.emplace_back();
    CAPTURE(none);
    try {
      static_cast<void>(weft::autograd::seal({}, weft::default_limits, given));
      FAIL("it was sealed");
    } catch (const weft::rpc_error& e) {
      CHECK(e.error() == weft::errc::invalid_argument);
      CHECK(e.error().message().find("gradient " + std::to_string(none)) != std::string::npos);
    }
  }
}

}  // namespace autograd_frames
