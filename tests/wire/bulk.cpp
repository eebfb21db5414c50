// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/bulk.hpp>
#include <weft/wire/message.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <transport/feeding.hpp>
#include <utility>
#include <vector>
#include <wire/sent_over.hpp>

namespace {

using weft::frame;
using weft::frame_header;
using weft::frame_kind;
using weft::section_kind;

struct memory final : weft::blob_owner {
  std::vector<std::byte> bytes;
};
weft::blob blob_of(std::size_t size, int value) {
  auto owner = weft::make_intrusive<memory>();
  owner->bytes.assign(size, static_cast<std::byte>(value));
  std::byte* const data = owner->bytes.data();
  return {data, size, std::move(owner)};
}
/// With these sections, in this order, and two buffers.
frame with_sections(frame_kind kind, std::size_t payload, const std::vector<section_kind>& all) {
  weft::message m;
  for (std::size_t i = 0; i < payload; ++i) m.payload().number(static_cast<std::uint8_t>(i));
  for (const section_kind k : all) {
    const std::array<std::byte, 5> content{static_cast<std::byte>(k)};
    m.section(k, content);
  }
  m.add_blob(blob_of(10, 1));
  m.add_blob(blob_of(300, 2));
  frame_header h;
  h.kind = kind;
  h.call = 0x700000003;
  h.function = 99;
  h.signature = 98;
  return std::move(m).finish(h);
}

TEST_CASE("bulk: a frame parts into a head that keeps all but its buffers, and a frame of these") {
  for (const auto kind : {frame_kind::request, frame_kind::reply, frame_kind::autograd}) {
    for (const std::size_t payload : {0u, 9u, 256u, 1000u}) {
      for (const auto& sections : {std::vector{section_kind::tensors},
                                   std::vector{section_kind::rref, section_kind::tensors},
                                   std::vector{section_kind::tensors, section_kind::autograd}}) {
        frame f = with_sections(kind, payload, sections);
        const frame_header before = f.header;
        const std::vector<std::byte> rest(f.head.view().begin() + 64, f.head.view().end());
        frame bulk = weft::split_bulk(f);

        CHECK(f.on_bulk());
        CHECK(f.blobs.empty());
        CHECK(f.wire_size() == f.head.size());
        CHECK(std::vector<std::byte>(f.head.view().begin() + 64, f.head.view().end()) == rest);
        frame_header after = before;
        after.flags |= weft::flag_bulk;
        CHECK(f.header == after);

        CHECK(bulk.header.kind == frame_kind::bulk);
        CHECK(weft::kind_behind(bulk.header) == kind);
        CHECK(bulk.blobs.size() == 2);
        CHECK(bulk.blobs[1].size() == 300);
        const bool request = kind == frame_kind::request;
        CHECK(bulk.header.function == (request ? 99 : 0));
        CHECK(bulk.header.payload_bytes == (request ? std::min<std::size_t>(payload, 256) : 0));
        CHECK(weft::belongs_to(bulk, f));

        // Both are frames that a receiver takes.
        const auto received = weft::decode_header(std::span<const std::byte, 64>(f.head.data(), 64),
                                                  weft::default_limits);
        REQUIRE(received);
        CHECK(*received == f.header);
        weft::incoming_message head(std::move(f));
        REQUIRE(head.check());
        CHECK(head.awaits_blobs());
        weft::incoming_message tensors(std::move(bulk));
        REQUIRE(tensors.check());
        CHECK(tensors.section(section_kind::tensors)->size() == 5);
        head.take_blobs({tensors.blobs().begin(), tensors.blobs().end()}, {});
        CHECK_FALSE(head.awaits_blobs());
        CHECK(head.blobs().size() == 2);
      }
    }
  }
}

TEST_CASE("bulk: tensors of another frame are known by call, kind, and every length") {
  frame one = with_sections(frame_kind::reply, 0, {section_kind::tensors});
  const frame bulk = weft::split_bulk(one);
  const auto other = [&](auto change) {
    frame f = with_sections(frame_kind::reply, 0, {section_kind::tensors});
    change(f);
    return weft::belongs_to(bulk, f);
  };
  CHECK(other([](frame&) {}));
  CHECK_FALSE(other([](frame& f) { ++f.header.call; }));
  CHECK_FALSE(other([](frame& f) { f.header.kind = frame_kind::failure; }));
  CHECK_FALSE(other([](frame& f) { f.header.tensors = 1; }));
  CHECK_FALSE(other([](frame& f) { f.head.data()[64] ^= std::byte{1}; }));
  CHECK_FALSE(other([](frame& f) { f.head.data()[64 + 15] ^= std::byte{1}; }));
}

TEST_CASE("bulk: a frame without buffers cannot say that they are elsewhere") {
  frame_header h;
  h.flags = weft::flag_bulk;
  std::array<std::byte, 64> bytes;
  weft::encode_header(h, bytes);
  const auto read = weft::decode_header(bytes, weft::default_limits);
  REQUIRE_FALSE(read);
  CHECK(read.error() == weft::errc::protocol_error);
}

}  // namespace
