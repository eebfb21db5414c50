// SPDX-License-Identifier: BSL-1.0
// The control messages of a pass, byte by byte: wire_page.py builds the same from the words of the
// wire page.
#include <weft/autograd/messages.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <wire/literal.hpp>

namespace wave_frames {

using namespace weft::autograd;

constexpr std::string_view need =
    "0002000000001000000300000004000000050000000100000102000000060000000000000008070605040302"
    "01";
constexpr std::string_view ack =
    "0102000000001000000300000004000000050000000300000002000000010000000200000001000000020000"
    "00";
constexpr std::string_view go = "0202000000001000000300000004000000";
constexpr std::string_view grad =
    "030200000000100000030000000400000006000000000000000a000000010200";
constexpr std::string_view opening =
    "0302000000001000000300000004000000060000000000000001000000010101010107000000";
constexpr std::string_view done = "0402000000001000000300000004000000020000000100000002000000";
constexpr std::string_view abort_pass =
    "0502000000001000000300000004000000020000000204000000676f6e65";
constexpr std::string_view end = "060200000000100000030000000400000000000000";
constexpr std::string_view riding = "0602000000001000000300000004000000010000000900000000000000";
constexpr std::string_view which = "0702000000001000000300000004000000";
constexpr std::string_view waits = "0802000000001000000300000004000000090000006d6573736167652036";

TEST_CASE("wave frames: every kind of message") {
  const pass_id pass{.context = std::uint64_t{1} << 44 | 2, .initiator = 3, .number = 4};
  struct sample {
    control_body body;
    std::string_view bytes;
  };
  for (const sample& s :
       {sample{need_message{5, graph_retention::retain, {6, 0x0102030405060708}, need_reply::none},
               need},
        sample{ack_message{.sequence = 5, .workers = {1, 2}, .needs = 3, .waiting = {2}}, ack},
        sample{go_message{}, go}, sample{grad_message{6, 10, {0b00000001, 0b00000010}}, grad},
        sample{grad_message{6,
                            1,
                            {1},
                            pass_opening{{graph_retention::retain, gradient_graph::create,
                                          leaf_gradients::inputs},
                                         7}},
               opening},
        sample{done_message{{1, 2}}, done},
        sample{abort_message{2, abort_reason::lost, "gone"}, abort_pass},
        sample{end_message{}, end}, sample{end_message{{9}}, riding},
        sample{which_message{}, which}, sample{waits_message{"message 6"}, waits}}) {
    const control message{pass, s.body};
    CHECK(weft_test::hex(encode(message)) == std::string(s.bytes));
    CHECK((decode(weft_test::bytes_in(s.bytes)) == message));
  }
}

}  // namespace wave_frames
