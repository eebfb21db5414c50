// SPDX-License-Identifier: BSL-1.0
// Memory lacks for a part of a frame: it goes by, says what services need of it, and the next one is
// whole.
#include "shortage.hpp"
#include <weft/transport/frame_assembler.hpp>
#include <weft/wire/message.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <conformance/rig.hpp>
#include <transport/feeding.hpp>
#include <vector>

namespace {

using weft::partial_frame;
using weft::section_kind;
using weft::conformance::make_blob;
using weft::testing::feed;
using weft::testing::thread_memory;
using weft::testing::wire;

struct quiet_sink final : weft::frame_sink {
  struct skip {
    weft::frame rest;
    partial_frame what;
    std::uint64_t bytes;
  };
  weft::limits limit;
  std::vector<weft::frame> frames;
  std::vector<skip> skipped;

  quiet_sink() { frames.reserve(8), skipped.reserve(8); }
  const weft::limits& bounds() const noexcept override { return limit; }
  weft::expected<weft::blob> allocate(std::size_t bytes) override { return make_blob(bytes); }
  weft::expected<void> frame_arrived(weft::frame&& f) override {
    frames.push_back(std::move(f));
    return {};
  }
  weft::expected<void> frame_skipped(weft::frame&& rest, partial_frame what, std::uint64_t bytes,
                                     weft::error why) override {
    CHECK(why == weft::errc::resource_exhausted);
    skipped.push_back({std::move(rest), what, bytes});
    return {};
  }
  void progress() noexcept override {}
};

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251);
  return out;
}

TEST_CASE("large: of a frame that goes by for want of memory, its sections are kept") {
  const auto section = pattern(200'000);
  const auto payload = pattern(600'000);
  weft::message m;
  m.payload().raw(payload.data(), payload.size());
  m.section(section_kind::tensors, pattern(40));
  m.section(section_kind::rref, section);
  for (const std::size_t size : {0u, 4'000'000u, 10u})
    static_cast<void>(m.add_blob(make_blob(size)));
  weft::frame_header h;
  h.call = 55;
  const auto poor = wire(std::move(m).finish(h));
  const auto small = wire(weft::conformance::make_frame(9, 30, {}));
  struct lack {
    std::size_t bytes;
    partial_frame leaves;
  };
  for (const lack& l :
       {lack{3'000'000, partial_frame::head}, lack{450'000, partial_frame::sections},
        lack{100'000, partial_frame::header}}) {
    for (const std::size_t step : {900u, 5000u, 70'000u, 1'000'000u}) {
      INFO("from ", l.bytes, " bytes, step ", step);
      const auto at_once = [step] { return step; };
      weft::frame_assembler a;
      quiet_sink s;
      CHECK_FALSE(feed(a, s, small, at_once));
      thread_memory::here().lack(l.bytes);
      CHECK_FALSE(feed(a, s, poor, at_once));
      CHECK(thread_memory::here().suffice() > 0);
      CHECK_FALSE(feed(a, s, small, at_once));
      REQUIRE(s.frames.size() == 2);
      REQUIRE(s.skipped.size() == 1);
      CHECK(weft::conformance::is_intact(s.frames.front(), 9));
      CHECK(weft::conformance::is_intact(s.frames.back(), 9));
      auto& [rest, what, bytes] = s.skipped.front();
      CHECK(bytes == poor.size());
      CHECK(rest.header.call == 55);
      CHECK(what == l.leaves);
      if (what == partial_frame::header) continue;
      weft::incoming_message in(std::move(rest));
      REQUIRE(in.check());
      const auto kept = in.section(section_kind::rref);
      REQUIRE(kept.has_value());
      CHECK(std::ranges::equal(*kept, section));
      CHECK_FALSE(in.section(section_kind::tensors).has_value());
      const auto left = in.whole().payload();
      if (what == partial_frame::head) {
        CHECK(std::ranges::equal(left.first(payload.size()), payload));
      } else {
        CHECK(left.empty());
      }
    }
  }
}

}  // namespace
