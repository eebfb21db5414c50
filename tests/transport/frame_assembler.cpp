// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/frame_assembler.hpp>
#include <weft/wire/message.hpp>

#include <asio/buffer.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <conformance/rig.hpp>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <transport/feeding.hpp>

using weft::conformance::is_intact;
using weft::conformance::make_blob;
using weft::conformance::make_frame;
using weft::testing::feed;
using weft::testing::wire;

namespace {

struct sink final : weft::frame_sink {
  weft::limits limit;
  std::vector<weft::frame> frames;
  std::size_t allocated = 0;
  std::size_t progressed = 0;
  std::size_t budget = SIZE_MAX;
  std::function<void()> on_frame = [] {};

  const weft::limits& bounds() const noexcept override { return limit; }
  weft::expected<weft::blob> allocate(std::size_t bytes) override {
    if (bytes > budget) return weft::unexpected(weft::error(weft::errc::resource_exhausted));
    allocated += bytes;
    return make_blob(bytes);
  }
  weft::expected<void> frame_arrived(weft::frame&& f) override {
    frames.push_back(std::move(f));
    on_frame();
    return {};
  }
  void progress() noexcept override { ++progressed; }
};

const auto everything = [] { return SIZE_MAX; };

TEST_CASE("frame_assembler: any frames, cut anywhere, come out whole and in order") {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    std::vector<std::byte> bytes;
    constexpr std::uint64_t count = 30;
    for (std::uint64_t i = 0; i < count; ++i) {
      std::vector<std::size_t> blobs(random() % 4 == 0 ? random() % 20 : 0);
      for (auto& b : blobs) b = random() % 3 == 0 ? 0 : random() % 3000;
      if (random() % 20 == 0) blobs.push_back(200'000);
      const auto all =
          wire(make_frame(i, random() % 10 == 0 ? random() % 200'000 : random() % 200, blobs));
      bytes.insert(bytes.end(), all.begin(), all.end());
    }
    sink s;
    weft::frame_assembler a;
    const unsigned most = 1u << (round % 18);
    REQUIRE_FALSE(feed(a, s, bytes, [&] { return 1 + random() % most; }));
    REQUIRE(s.frames.size() == count);
    for (std::uint64_t i = 0; i < count; ++i) CHECK(is_intact(s.frames[i], i));
    CHECK(a.between_frames());
    CHECK(s.progressed > 0);
  }
}

TEST_CASE("frame_assembler: a frame cut at any byte is not delivered, and known to be under way") {
  const auto bytes = wire(make_frame(3, 150, {0, 20, 0, 5, 0}));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    CAPTURE(cut);
    sink s;
    weft::frame_assembler a;
    REQUIRE_FALSE(feed(a, s, std::span(bytes).first(cut), everything));
    CHECK(s.frames.empty());
    CHECK(a.between_frames() == (cut == 0));
    REQUIRE_FALSE(feed(a, s, std::span(bytes).subspan(cut), everything));
    REQUIRE(s.frames.size() == 1);
    CHECK(is_intact(s.frames[0], 3));
  }
}

TEST_CASE("frame_assembler: a flipped bit in header or table is an error, or what it now says") {
  const auto good = make_frame(3, 20, {8, 0, 9});
  const auto bytes = wire(good);
  for (std::size_t bit = 0; bit < good.head.size() * 8; ++bit) {
    CAPTURE(bit);
    auto flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    sink s;
    s.limit.frame_tensor_bytes = 1u << 20;
    weft::frame_assembler a;
    const auto error = feed(a, s, flipped, everything);
    if (error) {
      const bool named = *error == weft::errc::protocol_error ||
                         *error == weft::errc::version_mismatch ||
                         *error == weft::errc::message_too_large;
      CHECK(named);
    }
    for (const auto& f : s.frames) {
      CHECK(f.head.size() == 64 + f.header.payload_bytes + f.header.table_bytes);
      REQUIRE(f.blobs.size() == (f.on_bulk() ? 0 : f.header.tensors));
      for (std::size_t i = 0; i < f.blobs.size(); ++i) CHECK(f.blobs[i].size() == f.blob_length(i));
    }
    CHECK(s.allocated <= 1u << 20);
  }
}

TEST_CASE("frame_assembler: tensors over the limit, also by overflow, are refused unallocated") {
  const auto with_lengths = [](std::uint64_t first, std::uint64_t second) {
    auto f = make_frame(1, 0, {1, 1});
    std::memcpy(f.head.data() + 64, &first, 8);
    std::memcpy(f.head.data() + 72, &second, 8);
    return std::vector<std::byte>(f.head.view().begin(), f.head.view().end());
  };
  const std::uint64_t most = ~std::uint64_t{0};
  for (const auto& [first, second] : {std::pair{most, std::uint64_t{1}},
                                      {most, most},
                                      {1, most},
                                      {most / 2 + 1, most / 2 + 1},
                                      {1000, 1},
                                      {0, 1001}}) {
    sink s;
    s.limit.frame_tensor_bytes = 1000;
    weft::frame_assembler a;
    const auto error = feed(a, s, with_lengths(first, second), everything);
    REQUIRE(error);
    CHECK(*error == weft::errc::message_too_large);
    CHECK(s.allocated == 0);
  }
  sink s;
  s.limit.frame_tensor_bytes = 1000;
  weft::frame_assembler a;
  CHECK_FALSE(feed(a, s, with_lengths(999, 1), everything));
  CHECK(s.allocated == 1000);
}

TEST_CASE("frame_assembler: memory follows the bytes that came, not those announced") {
  auto f = make_frame(1, 100);
  f.header.payload_bytes = 256u << 20;
  f.seal();
  std::vector<std::byte> bytes(f.head.view().begin(), f.head.view().end());
  bytes.resize(300'000);
  sink s;
  weft::frame_assembler a;
  std::array<asio::mutable_buffer, 8> room;
  std::size_t received = 0;
  while (received < bytes.size()) {
    std::size_t offered = 0;
    const std::size_t pieces = a.room(room, s.bounds());
    for (std::size_t i = 0; i < pieces; ++i) offered += room[i].size();
    CHECK(offered <= 2 * received + 64 * 1024);
    const std::size_t n = std::min({room[0].size(), bytes.size() - received, std::size_t{5000}});
    std::memcpy(room[0].data(), bytes.data() + received, n);
    received += n;
    REQUIRE(a.arrived(n, s));
  }
  CHECK(s.frames.empty());
}

TEST_CASE("frame_assembler: of a frame whose tensors travel elsewhere, the next follows its head") {
  for (const bool small : {true, false}) {
    std::vector<std::byte> bytes;
    for (std::uint64_t i = 0; i < 6; ++i) {
      auto f = make_frame(i, small ? 20 : 300'000, {1000, 100'000});
      if (i % 2 == 0) static_cast<void>(weft::split_bulk(f));
      const auto all = wire(f);
      bytes.insert(bytes.end(), all.begin(), all.end());
    }
    sink s;
    weft::frame_assembler a;
    REQUIRE_FALSE(feed(a, s, bytes, [] { return std::size_t{777}; }));
    REQUIRE(s.frames.size() == 6);
    for (std::uint64_t i = 0; i < 6; ++i) {
      CHECK(s.frames[i].header.call == i);
      CHECK(s.frames[i].on_bulk() == (i % 2 == 0));
      CHECK(s.frames[i].blobs.size() == (i % 2 == 0 ? 0 : 2));
    }
    CHECK(s.allocated == 3 * 101'000);
  }
}

TEST_CASE("frame_assembler: before the handshake is over a connection's buffer stays small") {
  sink s;
  s.limit.payload = s.limit.handshake = 4096;
  s.limit.tensors = 0;
  weft::frame_assembler a;
  std::array<asio::mutable_buffer, 8> room;
  for (int i = 0; i < 100; ++i) {
    REQUIRE_FALSE(feed(a, s, wire(make_frame(1, 3000)), everything));
    std::size_t offered = 0;
    const std::size_t pieces = a.room(room, s.bounds());
    for (std::size_t p = 0; p < pieces; ++p) offered += room[p].size();
    CHECK(offered <= 1024);
  }
  const auto error = feed(a, s, wire(make_frame(1, 4097)), everything);
  REQUIRE(error);
  CHECK(*error == weft::errc::message_too_large);
}

TEST_CASE("frame_assembler: bounds that change with a frame hold for the next in the same read") {
  sink s;
  s.limit.payload = 10;
  s.on_frame = [&] { s.limit.payload = 1000; };
  auto bytes = wire(make_frame(1, 10));
  const auto second = wire(make_frame(2, 1000));
  bytes.insert(bytes.end(), second.begin(), second.end());
  weft::frame_assembler a;
  CHECK_FALSE(feed(a, s, bytes, everything));
  CHECK(s.frames.size() == 2);
}

TEST_CASE("frame_assembler: the sink's refusal of memory is the read's error") {
  sink s;
  s.budget = 10;
  weft::frame_assembler a;
  const auto error = feed(a, s, wire(make_frame(1, 5, {10, 11})), everything);
  REQUIRE(error);
  CHECK(*error == weft::errc::resource_exhausted);
  CHECK(s.frames.empty());
}

TEST_CASE("frame_assembler: a large tensor is received where it stays") {
  sink s;
  weft::frame_assembler a;
  const auto f = make_frame(1, 5, {1u << 20});
  REQUIRE_FALSE(feed(a, s, f.head.view(), everything));
  std::array<asio::mutable_buffer, 8> room;
  REQUIRE(a.room(room, s.bounds()) == 2);
  CHECK(room[0].size() == 1u << 20);
  const auto* const place = room[0].data();
  std::memcpy(room[0].data(), f.blobs[0].data(), f.blobs[0].size());
  REQUIRE(a.arrived(1u << 20, s).value() == 1);
  CHECK(s.frames[0].blobs[0].data() == place);
  CHECK(is_intact(s.frames[0], 1));
}

/// Has memory for some frames only; the others go by.
struct poor_sink final : weft::frame_sink {
  weft::limits limit;
  std::size_t budget = 1000;
  std::vector<weft::frame> frames;
  struct skip {
    weft::frame rest;
    weft::partial_frame what;
    std::uint64_t bytes;
  };
  std::vector<skip> skipped;

  const weft::limits& bounds() const noexcept override { return limit; }
  weft::expected<weft::blob> allocate(std::size_t bytes) override {
    if (bytes > budget) {
      return weft::unexpected(weft::error(weft::errc::resource_exhausted, "poor"));
    }
    return make_blob(bytes);
  }
  weft::expected<void> frame_arrived(weft::frame&& f) override {
    frames.push_back(std::move(f));
    return {};
  }
  weft::expected<void> frame_skipped(weft::frame&& rest, weft::partial_frame what,
                                     std::uint64_t bytes, weft::error why) override {
    CHECK(why == weft::errc::resource_exhausted);
    CHECK(why.detail().text == "poor");
    skipped.push_back({std::move(rest), what, bytes});
    return {};
  }
  void progress() noexcept override {}
};

TEST_CASE("frame_assembler: frames for which memory lacks go by, those around them are whole") {
  std::mt19937 random(23);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    std::vector<std::byte> bytes;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> poor;  // call, size
    std::vector<std::uint64_t> rich;
    for (std::uint64_t i = 0; i < 40; ++i) {
      std::vector<std::size_t> blobs(random() % 3 == 0 ? random() % 6 : 0);
      bool fits = true;
      for (auto& b : blobs) {
        b = random() % 4 == 0 ? 1001 + random() % 100'000 : random() % 1000;
        fits = fits && b <= 1000;
      }
      auto f = make_frame(i, random() % 3000, blobs);
      const auto all = wire(f);
      if (fits) {
        rich.push_back(i);
      } else {
        poor.emplace_back(f.header.call, all.size());
      }
      bytes.insert(bytes.end(), all.begin(), all.end());
    }
    weft::frame_assembler a;
    poor_sink s;
    std::array<asio::mutable_buffer, 8> room;
    std::span<const std::byte> rest(bytes);
    while (!rest.empty()) {
      const std::size_t pieces = a.room(room, s.bounds());
      std::size_t left = std::min<std::size_t>(1 + random() % 5000, rest.size());
      std::size_t taken = 0;
      for (std::size_t i = 0; i < pieces && left > 0; ++i) {
        const std::size_t n = std::min(left, room[i].size());
        std::memcpy(room[i].data(), rest.data() + taken, n);
        taken += n;
        left -= n;
      }
      REQUIRE(taken > 0);
      rest = rest.subspan(taken);
      REQUIRE(a.arrived(taken, s));
    }
    CHECK(a.between_frames());
    REQUIRE(s.frames.size() == rich.size());
    for (std::size_t i = 0; i < rich.size(); ++i) {
      CHECK(is_intact(s.frames[i], rich[i]));
    }
    REQUIRE(s.skipped.size() == poor.size());
    for (std::size_t i = 0; i < poor.size(); ++i) {
      CHECK(s.skipped[i].rest.header.call == poor[i].first);
      CHECK(s.skipped[i].bytes == poor[i].second);
    }
  }
}

std::vector<std::byte> noise(std::mt19937& random, std::size_t size) {
  std::vector<std::byte> out(size);
  for (auto& b : out) b = static_cast<std::byte>(random());
  return out;
}

TEST_CASE("frame_assembler: of a frame that goes by, all is kept but its tensors") {
  using weft::section_kind;
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const auto payload = noise(random, random() % 3000);
    std::map<section_kind, std::vector<std::byte>> given;
    weft::message m;
    m.payload().raw(payload.data(), payload.size());
    for (auto kind : {section_kind::rref, section_kind::tensors, section_kind::autograd}) {
      if (kind != section_kind::tensors && random() % 4 == 0) continue;
      given[kind] = noise(random, random() % 500);
      m.section(kind, given[kind]);
    }
    given.erase(section_kind::tensors);
    for (std::size_t i = 0; i < 1 + random() % 5; ++i) {
      static_cast<void>(m.add_blob(make_blob(i == 0 ? 5000 : random() % 900)));
    }
    weft::frame_header h;
    h.kind = weft::frame_kind::reply;
    h.call = 77;
    h.function = 99;
    const auto f = std::move(m).finish(h);
    const auto all = wire(f);
    weft::frame_assembler a;
    poor_sink s;
    REQUIRE_FALSE(feed(a, s, all, [&] { return 1 + random() % 2000; }));
    REQUIRE(s.skipped.size() == 1);
    CHECK(s.skipped[0].what == weft::partial_frame::head);
    CHECK(s.skipped[0].bytes == all.size());
    weft::incoming_message rest(std::move(s.skipped[0].rest));
    REQUIRE(rest.check());
    CHECK(rest.header().kind == h.kind);
    CHECK(rest.header().call == h.call);
    CHECK(rest.header().function == h.function);
    CHECK(rest.header().flags == f.header.flags);
    CHECK(std::ranges::equal(rest.whole().payload(), f.payload()));
    for (auto kind : {section_kind::rref, section_kind::tensors, section_kind::autograd}) {
      const auto kept = rest.section(kind);
      REQUIRE(kept.has_value() == given.contains(kind));
      if (kept) CHECK(std::ranges::equal(*kept, given[kind]));
    }
  }
}

TEST_CASE("frame_assembler: a table that lies about its sections is refused, also as it goes by") {
  weft::message m;
  m.section(weft::section_kind::tensors, std::array<std::byte, 10>{});
  static_cast<void>(m.add_blob(make_blob(5000)));
  const auto f = std::move(m).finish({});
  for (const std::uint32_t length : {0u, 9u, 11u, 0xffffffffu}) {
    auto all = wire(f);
    std::memcpy(all.data() + weft::header_size + f.header.payload_bytes + 8 + 4, &length, 4);
    weft::frame_assembler a;
    poor_sink s;
    const auto stopped = feed(a, s, all, everything);
    REQUIRE(stopped.has_value());
    CHECK(*stopped == weft::errc::protocol_error);
  }
}

/// Memory for a frame of one tensor or more.
class own_memory final : public weft::given_memory {
 public:
  std::vector<std::vector<std::byte>> buffers;

  std::byte* place(const weft::frame&, std::size_t buffer, std::size_t bytes) noexcept override {
    buffers.resize(std::max(buffers.size(), buffer + 1));
    if (bytes % 5 == 0) return nullptr;  // it does not fit
    buffers[buffer].resize(bytes);
    return buffers[buffer].data();
  }
};
struct giving_sink final : weft::frame_sink {
  weft::limits limit;
  std::vector<weft::frame> frames;
  std::map<std::uint64_t, weft::intrusive_ptr<own_memory>> given;

  const weft::limits& bounds() const noexcept override { return limit; }
  weft::expected<weft::blob> allocate(std::size_t bytes) override { return make_blob(bytes); }
  weft::intrusive_ptr<weft::given_memory> given_for(const weft::frame& head) override {
    if (head.header.call % 3 == 0) return nullptr;
    return given[head.header.call] = weft::make_intrusive<own_memory>();
  }
  weft::expected<void> frame_arrived(weft::frame&& f) override {
    frames.push_back(std::move(f));
    return {};
  }
  void progress() noexcept override {}
};

TEST_CASE(
    "frame_assembler: memory that was given is written until it is taken back, and no longer") {
  std::mt19937 random(29);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    constexpr std::uint64_t count = 30;
    std::vector<std::byte> all;
    std::vector<std::vector<std::byte>> wires;
    for (std::uint64_t i = 0; i < count; ++i) {
      std::vector<std::size_t> blobs(random() % 4);
      for (auto& b : blobs) b = random() % 5 == 0 ? 0 : random() % 9000;
      if (random() % 10 == 0) blobs.push_back(150'000);
      wires.push_back(wire(make_frame(i, random() % 200, blobs)));
      all.insert(all.end(), wires.back().begin(), wires.back().end());
    }
    weft::frame_assembler a;
    giving_sink s;
    std::map<std::uint64_t, std::vector<std::vector<std::byte>>> as_taken_back;
    const auto take_one_back = [&] {
      if (s.given.empty() || random() % 40 != 0) return;
      const auto& [number, memory] = *s.given.rbegin();
      memory->take_back();
      as_taken_back.try_emplace(number, memory->buffers);
    };
    std::array<asio::mutable_buffer, 8> room;
    for (std::size_t at = 0; at < all.size();) {
      std::size_t taken = 0;
      {
        const auto held = a.hold_given();
        const std::size_t pieces = a.room(room, s.bounds());
        std::size_t left = std::min<std::size_t>(1 + random() % 3000, all.size() - at);
        for (std::size_t i = 0; i < pieces && left > 0; ++i) {
          const std::size_t n = std::min(left, room[i].size());
          if (n > 0) std::memcpy(room[i].data(), all.data() + at + taken, n);
          taken += n;
          left -= n;
        }
      }
      REQUIRE(taken > 0);
      take_one_back();
      REQUIRE(a.arrived(taken, s));
      take_one_back();
      at += taken;
    }
    REQUIRE(s.frames.size() == count);
    for (std::uint64_t i = 0; i < count; ++i) {
      CAPTURE(i);
      const weft::frame& f = s.frames[i];
      CHECK(f.header.call == i);
      if (const auto was = as_taken_back.find(i); was != as_taken_back.end()) {
        CHECK(s.given[i]->buffers == was->second);
        continue;
      }
      CHECK(wire(f) == wires[i]);
      for (std::size_t b = 0; b < f.blobs.size(); ++b) {
        if (i % 3 == 0 || f.blobs[b].size() == 0) continue;
        const bool there = f.blobs[b].data() == s.given[i]->buffers[b].data();
        CHECK(there == (f.blobs[b].size() % 5 != 0));
      }
    }
    CHECK(a.between_frames());
  }
}

}  // namespace
