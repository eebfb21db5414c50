// SPDX-License-Identifier: BSL-1.0
#include "sent_over.hpp"
#include <weft/wire/message.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

namespace {

struct counter final : weft::message_extension {
  int value = 0;
  void finish(weft::message& m) override {
    const std::byte raw[1] = {static_cast<std::byte>(value)};
    m.section(weft::section_kind::rref, raw);
  }
};
struct third final : weft::message_extension {
  std::string* told = nullptr;
  void finish(weft::message&) override { *told += "third"; }
};
struct other final : weft::message_extension {
  std::string* told = nullptr;
  void finish(weft::message& m) override {
    *told += "other, ";
    m.record().get<third>().told = told;
  }
};

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> out(text.size());
  std::transform(text.begin(), text.end(), out.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return out;
}

}  // namespace

TEST_CASE("message: payload, sections and blobs come back as they were") {
  weft::message m;
  m.payload().number(std::uint16_t{0x0201});
  m.payload().count(3);
  m.payload().raw("abc", 3);
  m.section(weft::section_kind::tensors, {});
  m.section(weft::section_kind::trace, bytes_of("trace"));
  CHECK(m.add_blob(weft_test::copy_of(bytes_of("first"))) == 0);
  CHECK(m.add_blob(weft_test::copy_of(bytes_of("2"))) == 1);
  weft::frame_header h;
  h.kind = weft::frame_kind::reply;
  h.call = 42;
  h.flags = weft::flag_padded;  // not the caller's to say
  const weft::frame f = std::move(m).finish(h);
  CHECK(f.header.payload_bytes == 9);
  CHECK(f.header.table_bytes == 2 * 8 + 8 + 8 + 5);
  CHECK(f.header.flags == 0);
  CHECK(f.wire_size() == weft::header_size + 9 + 37 + 6);
  CHECK(f.payload()[0] == std::byte{1});  // little-endian
  CHECK(f.blob_length(0) == 5);

  auto copy = weft_test::copy_of(f);
  REQUIRE(copy.has_value());
  CHECK(copy->header == f.header);
  weft::incoming_message in(std::move(*copy));
  REQUIRE(in.check().has_value());
  CHECK(in.section(weft::section_kind::trace)->size() == 5);
  CHECK(in.section(weft::section_kind::tensors)->empty());
  CHECK_FALSE(in.section(weft::section_kind::autograd).has_value());
  weft::reader r = in.payload();
  CHECK(r.source() == &in);
  CHECK(r.number<std::uint16_t>() == 0x0201);
  CHECK(r.count(1) == 3);
  CHECK(r.raw(3)[2] == std::byte{'c'});
  r.finish();
}

TEST_CASE("message: parts are one per class and finish before the frame is made") {
  weft::message m;
  CHECK(m.record().find<counter>() == nullptr);
  m.payload().extension<counter>().value = 5;
  m.record().get<counter>().value += 2;
  other& second = m.record().get<other>();
  CHECK(m.record().find<counter>()->value == 7);
  CHECK(&m.record().get<other>() == &second);
  CHECK(m.record().find<other>() == &second);
  CHECK(m.record().find<third>() == nullptr);
  std::string told;
  second.told = &told;
  weft::incoming_message in(std::move(m).finish({}));
  REQUIRE(in.check().has_value());
  CHECK(told == "other, third");  // also what is asked for meanwhile
  CHECK((*in.section(weft::section_kind::rref))[0] == std::byte{7});
  CHECK(in.record().find<counter>() == nullptr);
}

TEST_CASE("message: it can be moved while it is written") {
  weft::message a;
  a.payload().number(1);
  a.payload().extension<counter>().value = 3;
  weft::message b = std::move(a);
  b.payload().number(2);
  b.payload().extension<counter>().value += 1;
  weft::incoming_message in(std::move(b).finish({}));
  REQUIRE(in.check().has_value());
  weft::reader r = in.payload();
  CHECK(r.number<int>() == 1);
  CHECK(r.number<int>() == 2);
  CHECK((*in.section(weft::section_kind::rref))[0] == std::byte{4});
}

TEST_CASE("message: what the writer charges pads the payload until the reader may spend it") {
  weft::message m;
  m.payload().number(1);
  m.payload().charge(1'000'000);
  weft::incoming_message in(std::move(m).finish({}));
  REQUIRE(in.check().has_value());
  CHECK((in.header().flags & weft::flag_padded) != 0);
  weft::reader r = in.payload();
  (void)r.number<int>();
  r.charge(1'000'000);
  r.finish();
  weft::reader greedy = in.payload();
  CHECK_THROWS_AS(greedy.charge(2'000'000), weft::rpc_error);
}

TEST_CASE("message: sections of kinds that nobody knows are skipped, one of a kind and few") {
  const auto other = [](unsigned n) { return static_cast<weft::section_kind>(0x8000 + n); };
  const auto with = [&other](unsigned count, std::initializer_list<unsigned> changed) {
    weft::message m;
    for (unsigned i = 0; i < count; ++i) m.section(other(i), bytes_of("of others"));
    m.section(weft::section_kind::trace, bytes_of("trace"));
    weft::frame f = std::move(m).finish({});
    auto at = f.head.data() + weft::header_size;
    for (const unsigned kind : changed) {
      weft::detail::store(at, static_cast<std::uint16_t>(kind));
      at += 8 + 9;
    }
    return f;
  };
  weft::incoming_message in(with(16, {}));
  REQUIRE(in.check().has_value());
  CHECK(in.section(other(15))->size() == 9);
  CHECK_FALSE(in.section(other(16)).has_value());
  CHECK(in.section(weft::section_kind::trace)->size() == 5);
  CHECK(in.section_bits() == (1u << 31 | 1u << 4));
  CHECK(weft::incoming_message(with(17, {})).check().error() == weft::errc::protocol_error);
  CHECK(weft::incoming_message(with(3, {0x8001})).check().error() == weft::errc::protocol_error);
  CHECK(weft::incoming_message(with(3, {0xffff})).check().has_value());
  CHECK(weft::incoming_message(with(3, {0x7fff})).check().error() == weft::errc::protocol_error);
  CHECK(weft::incoming_message(with(3, {5})).check().error() == weft::errc::protocol_error);
  CHECK_FALSE(weft::incoming_message(with(0, {})).section(other(0)).has_value());
}

TEST_CASE("message: blobs that differ from their table, or have no section, are refused") {
  auto with_blob = [](bool section) {
    weft::message m;
    if (section) m.section(weft::section_kind::tensors, {});
    (void)m.add_blob(weft_test::copy_of(bytes_of("blob")));
    return std::move(m).finish({});
  };
  CHECK(weft::incoming_message(with_blob(true)).check().has_value());
  CHECK(weft::incoming_message(with_blob(false)).check().error() == weft::errc::protocol_error);
  weft::frame shorter = with_blob(true);
  shorter.blobs[0] = weft_test::copy_of(bytes_of("blo"));
  CHECK(weft::incoming_message(std::move(shorter)).check().error() == weft::errc::protocol_error);
  weft::frame none = with_blob(true);
  none.blobs.clear();
  CHECK(weft::incoming_message(std::move(none)).check().error() == weft::errc::protocol_error);
}
