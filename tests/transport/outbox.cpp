// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/outbox.hpp>

#include <doctest/doctest.h>

#include <array>
#include <conformance/rig.hpp>
#include <random>

using weft::conformance::make_frame;

namespace {

std::vector<std::byte> bytes_of(const weft::frame& f) {
  std::vector<std::byte> all(f.head.view().begin(), f.head.view().end());
  for (const auto& b : f.blobs) all.insert(all.end(), b.data(), b.data() + b.size());
  return all;
}

TEST_CASE("outbox: gathers and advances over frames, heads, blobs and empty blobs, in any steps") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    CAPTURE(round);
    weft::outbox c;
    std::vector<std::byte> expected;
    for (std::uint64_t i = 0; i < 20; ++i) {
      std::vector<std::size_t> blobs(random() % 5);
      for (auto& b : blobs) b = random() % 3 == 0 ? 0 : random() % 100;
      auto f = make_frame(i, random() % 50, blobs);
      const auto all = bytes_of(f);
      expected.insert(expected.end(), all.begin(), all.end());
      c.push(std::move(f));
    }
    CHECK(c.waiting_bytes() == expected.size());
    std::vector<std::byte> got;
    std::array<asio::const_buffer, 7> out;
    while (!c.empty()) {
      const std::span<asio::const_buffer> room(out.data(), 1 + random() % out.size());
      const std::size_t count = c.gather(room);
      REQUIRE(count > 0);
      std::size_t take = 0;
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(out[i].size() > 0);
        const auto n = random() % 3 == 0 ? random() % out[i].size() : out[i].size();
        const auto* from = static_cast<const std::byte*>(out[i].data());
        got.insert(got.end(), from, from + n);
        take += n;
        if (n < out[i].size()) break;
      }
      c.advance(take);
    }
    CHECK(got == expected);
    CHECK(c.waiting_bytes() == 0);
    CHECK_FALSE(c.begun());
    CHECK(c.finished().size() == 20);
  }
}

TEST_CASE("outbox: gathers no more bytes than it is asked for, over frames and buffers") {
  weft::outbox c;
  std::vector<std::byte> expected, got;
  for (std::uint64_t i = 0; i < 5; ++i) {
    auto f = make_frame(i, 10, {30, 0, 100});
    const auto all = bytes_of(f);
    expected.insert(expected.end(), all.begin(), all.end());
    c.push(std::move(f));
  }
  std::array<asio::const_buffer, 7> out;
  CHECK(c.gather(out, 0) == 0);
  while (!c.empty()) {
    const std::size_t count = c.gather(out, 77);
    REQUIRE(count > 0);
    std::size_t take = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::byte*>(out[i].data());
      got.insert(got.end(), from, from + out[i].size());
      take += out[i].size();
    }
    CHECK(take <= 77);
    c.advance(take);
    if (!c.empty()) CHECK(take == 77);
  }
  CHECK(got == expected);
}

TEST_CASE("outbox: a frame is begun from its first byte to its last") {
  weft::outbox c;
  c.push(make_frame(1, 0, {0, 4, 0}));
  CHECK_FALSE(c.begun());
  c.advance(1);
  CHECK(c.begun());
  c.advance(64 + 24 - 1);
  CHECK(c.begun());
  c.advance(3);
  CHECK(c.finished().empty());
  c.advance(1);
  CHECK_FALSE(c.begun());
  CHECK(c.empty());
  CHECK(c.finished().size() == 1);
}

TEST_CASE("outbox: take moves whole frames, abandon all that is left") {
  weft::outbox c;
  for (std::uint64_t i = 0; i < 40; ++i) c.push(make_frame(i, 10, {3}));
  CHECK(c.take().header.call == 0);
  CHECK(c.frames() == 39);
  CHECK(c.waiting_bytes() == 39 * (64 + 10 + 8 + 3));
  c.advance(70);
  auto rest = c.abandon();
  CHECK(rest.size() == 39);
  CHECK(c.empty());
  CHECK_FALSE(c.begun());
  CHECK(c.waiting_bytes() == 0);
}

TEST_CASE("frame_queue: first in, first out, across growth and wrap-around") {
  weft::frame_queue q;
  std::uint64_t in = 0, out = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < round % 37; ++i) q.push(make_frame(in++, 1));
    for (int i = 0; i < round % 31 && !q.empty(); ++i) REQUIRE(q.pop().header.call == out++);
  }
  while (!q.empty()) REQUIRE(q.pop().header.call == out++);
  CHECK(in == out);
}

TEST_CASE("outbox: a frame is withdrawn if none of it was written, and leaves no trace") {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    weft::outbox c;
    const auto any = [](const weft::frame&) { return true; };
    std::vector<std::vector<std::byte>> frames;
    std::vector<bool> gone(30, false);
    std::vector<std::byte> got;
    for (std::uint64_t i = 0; i < 30; ++i) {
      auto f = make_frame(i, random() % 50, {random() % 100});
      frames.push_back(bytes_of(f));
      REQUIRE(c.push(std::move(f)) == i);
      if (random() % 3 == 0) {  // write a little
        std::array<asio::const_buffer, 3> out;
        const std::size_t count = c.gather(out);
        std::size_t bytes = 0;
        for (std::size_t b = 0; b < count; ++b) {
          const auto* from = static_cast<const std::byte*>(out[b].data());
          const std::size_t n = b + 1 < count ? out[b].size() : random() % (out[b].size() + 1);
          got.insert(got.end(), from, from + n);
          bytes += n;
        }
        c.advance(bytes);
      }
      if (random() % 2 == 0) {
        const auto which = random() % (i + 1);
        const std::size_t before = c.frames();
        const auto back = c.withdraw(which, any);
        CHECK(c.frames() == before - (back.head.size() > 0 ? 1 : 0));
        if (back.head.size() > 0) {
          CHECK_FALSE(gone[which]);
          CHECK(bytes_of(back) == frames[which]);
          gone[which] = true;
        }
        CHECK(c.withdraw(which, any).head.size() == 0);
      }
    }
    if (round % 2 == 0) {
      std::array<asio::const_buffer, 64> out;
      while (!c.empty()) {
        const std::size_t count = c.gather(out);
        REQUIRE(count > 0);
        std::size_t bytes = 0;
        for (std::size_t b = 0; b < count; ++b) {
          const auto* from = static_cast<const std::byte*>(out[b].data());
          got.insert(got.end(), from, from + out[b].size());
          bytes += out[b].size();
        }
        c.advance(bytes);
      }
    } else if (!c.begun()) {
      while (!c.empty()) {
        const auto all = bytes_of(c.take());
        got.insert(got.end(), all.begin(), all.end());
      }
    } else {
      continue;
    }
    std::vector<std::byte> expected;
    for (std::size_t i = 0; i < frames.size(); ++i) {
      if (!gone[i]) expected.insert(expected.end(), frames[i].begin(), frames[i].end());
    }
    CHECK(got == expected);
    CHECK(c.frames() == 0);
    CHECK(c.waiting_bytes() == 0);
  }
}

TEST_CASE("outbox: what is withdrawn behind a front that does not move leaves nothing") {
  weft::outbox c;
  const auto any = [](const weft::frame&) { return true; };
  REQUIRE(c.push(make_frame(0, 10)) == 0);
  c.advance(5);
  REQUIRE(c.begun());
  for (std::uint64_t i = 1; i <= 20'000; ++i) {
    REQUIRE(c.push(make_frame(i, 10)) == i);
    CHECK(c.withdraw(i, any).header.call == i);
    CHECK(c.withdraw(i, any).head.size() == 0);
  }
  CHECK(c.capacity() <= 256);
  CHECK(c.frames() == 1);
  CHECK(c.begun());
  CHECK(c.first_unbegun() == 1);
  CHECK(c.next_number() == 20'001);
  CHECK(c.waiting_bytes() == 64 + 10 - 5);
  c.advance(64 + 10 - 5);
  CHECK(c.empty());
  CHECK(c.push(make_frame(7, 10)) == 20'001);
  CHECK(c.first_unbegun() == 20'001);
}

TEST_CASE("outbox: numbers find their frames, whatever was withdrawn between them") {
  std::mt19937 random(13);
  const auto any = [](const weft::frame&) { return true; };
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    weft::outbox c;
    std::vector<std::uint64_t> waiting;  // all but the front may be withdrawn
    std::vector<std::uint64_t> gone;
    std::vector<std::uint64_t> sent;
    std::uint64_t next = 0;
    const auto push = [&] {
      REQUIRE(c.push(make_frame(next, random() % 20)) == next);
      waiting.push_back(next++);
    };
    for (int step = 0; step < 3000; ++step) {
      const auto what = random() % 10;
      if (what < 5 || waiting.size() < 2) {
        push();
      } else if (what < 9) {
        const std::size_t which = random() % waiting.size();
        const std::uint64_t number = waiting[which];
        REQUIRE(c.withdraw(number, any).header.call == number);
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(which));
        gone.push_back(number);
      } else if (random() % 10 == 0) {
        sent.push_back(c.take().header.call);
        CHECK(sent.back() == waiting.front());
        waiting.erase(waiting.begin());
      }
      CHECK(c.frames() == waiting.size());
      CHECK(c.first_unbegun() == (waiting.empty() ? next : waiting.front()));
      CHECK(c.next_number() == next);
      if (!gone.empty()) CHECK(c.withdraw(gone[random() % gone.size()], any).head.size() == 0);
      if (!sent.empty()) CHECK(c.withdraw(sent[random() % sent.size()], any).head.size() == 0);
      CHECK(c.withdraw(next, any).head.size() == 0);
    }
    CHECK(c.capacity() <= 4096);
    while (!c.empty()) {
      REQUIRE(c.take().header.call == waiting.front());
      waiting.erase(waiting.begin());
    }
    CHECK(waiting.empty());
    CHECK(c.waiting_bytes() == 0);
  }
}

TEST_CASE("outbox: counts the bytes that the peer caused, however they leave") {
  weft::outbox c;
  const auto any = [](const weft::frame&) { return true; };
  const auto of_references = [](std::uint64_t i, std::uint64_t caused) {
    weft::frame f = make_frame(i, 40);
    f.header.kind = weft::frame_kind::rref;
    f.caused = caused;
    f.seal();
    return f;
  };
  constexpr std::uint64_t each = 64 + 40;
  c.push(of_references(0, 0));  // of this worker's own
  for (std::uint64_t i = 1; i <= 4; ++i) c.push(of_references(i, each));
  CHECK(c.caused_bytes() == 4 * each);
  CHECK(c.waiting_bytes() == 5 * each);
  CHECK(c.take().header.call == 0);
  CHECK(c.caused_bytes() == 4 * each);
  CHECK(c.take().header.call == 1);
  CHECK(c.caused_bytes() == 3 * each);
  c.advance(each - 1);
  CHECK(c.caused_bytes() == 3 * each);
  c.advance(1);
  CHECK(c.caused_bytes() == 2 * each);
  CHECK(c.withdraw(4, any).header.call == 4);
  CHECK(c.caused_bytes() == each);
  static_cast<void>(c.abandon());
  CHECK(c.caused_bytes() == 0);
}

TEST_CASE("frame_queue: gives a burst's memory back, and keeps what is needed again and again") {
  weft::frame_queue q;
  auto hold = [&q](int count) {
    for (int i = 0; i < count; ++i) q.push(make_frame(0, 1));
    for (int i = 0; i < count; ++i) static_cast<void>(q.pop());
  };
  hold(20'000);
  CHECK(q.capacity() >= 20'000);
  hold(3);
  CHECK(q.capacity() <= 256);
  hold(200);
  const std::size_t before = q.capacity();
  for (int round = 0; round < 10; ++round) {
    hold(1);
    CHECK(q.capacity() == before);  // little, and often wanted
  }
  hold(5'000);
  const std::size_t large = q.capacity();
  for (int round = 0; round < 10; ++round) {
    hold(5'000);
    CHECK(q.capacity() == large);
  }
}

}  // namespace
