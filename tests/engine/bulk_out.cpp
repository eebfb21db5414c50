// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/link/bulk_out.hpp>

#include <doctest/doctest.h>

#include <conformance/rig.hpp>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::write_status;
using weft::conformance::make_frame;
using weft::engine::bulk_out;

/// Takes as many bytes as it is told.
struct narrow final : weft::any_connection {
  std::uint64_t takes = 0;
  std::uint64_t taken = 0;
  bool closed = false;

  write_status try_write(weft::outbox& batch) noexcept override {
    if (closed) return write_status::closed;
    for (std::uint64_t left = batch.turn(); !batch.empty();) {
      std::array<asio::const_buffer, 4> out;
      const std::size_t n = batch.gather(out, left);
      std::uint64_t size = 0;
      for (std::size_t i = 0; i < n; ++i) size += out[i].size();
      size = std::min(size, takes);
      if (size == 0) return write_status::blocked;
      takes -= size;
      taken += size;
      left -= size;
      batch.advance(static_cast<std::size_t>(size));
    }
    return batch.empty() ? write_status::everything : write_status::blocked;
  }
  asio::awaitable<void> writable() override { co_return; }
  asio::awaitable<void> read(weft::frame_sink&) override { co_return; }
  void close() noexcept override { closed = true; }
  std::size_t unsent_frames() const noexcept override { return 0; }
  std::string_view transport() const noexcept override { return "narrow"; }
  bool move_to(asio::io_context&) override { return false; }
  bool shares_reading() const noexcept override { return false; }
  bool read_at_once(weft::frame_sink&) override { return false; }
  asio::awaitable<void> readable() override { co_return; }
  void announce_to(weft::intrusive_ptr<weft::arrival_ends>) override {}
  bool needs_life() const noexcept override { return true; }
};

struct open_way {
  std::shared_ptr<narrow> there = std::make_shared<narrow>();
  bulk_out out;

  open_way() {
    out.allow();
    REQUIRE(out.wants_connection({}));
    REQUIRE(out.opened(there));
  }
  bulk_out::turn write() {
    REQUIRE(out.begin_turn());
    return out.end_turn(out.write());
  }
};

TEST_CASE("bulk_out: one connection is asked for, and again only a while after it failed") {
  bulk_out out;
  const weft::time_point now{};
  CHECK_FALSE(out.wants_connection(now));  // the peer takes none
  out.allow();
  CHECK(out.wants_connection(now));
  CHECK_FALSE(out.wants_connection(now));
  CHECK_FALSE(out.is_open());
  out.failed(now);
  CHECK_FALSE(out.wants_connection(now + 999ms));
  CHECK(out.wants_connection(now + 1s));
  CHECK(out.opened(std::make_shared<narrow>()));
  CHECK(out.is_open());
  CHECK_FALSE(out.wants_connection(now + 5s));
  static_cast<void>(out.close());
  CHECK_FALSE(out.is_open());
  CHECK_FALSE(out.wants_connection(now + 5s));
  bulk_out late;
  late.allow();
  CHECK(late.wants_connection(now));
  static_cast<void>(late.close());
  CHECK_FALSE(late.opened(std::make_shared<narrow>()));
}

TEST_CASE("bulk_out: bytes, frames and turns are counted, whatever the connection takes") {
  open_way w;
  CHECK_FALSE(w.out.begin_turn());
  std::uint64_t all = 0;
  for (std::uint64_t i = 0; i < 4; ++i) {
    auto f = make_frame(i, 0, {700'000});
    all += f.wire_size();
    w.out.push(10 + i, std::move(f));
  }
  CHECK(w.out.waiting_bytes() == all);
  CHECK(w.out.waiting() == 4);
  std::uint64_t written = 0;
  std::size_t finished = 0;
  for (int i = 0; i < 100 && w.out.waiting() > 0; ++i) {
    w.there->takes = 123'456;
    const auto turn = w.write();
    written += turn.bytes;
    finished += turn.finished.size();
    CHECK(w.out.waiting_bytes() == all - written);
    CHECK(w.out.begin_wait() == (i == 0));  // one waits
    w.out.may_write();
    CHECK(w.out.goes_on() == (w.out.waiting() > 0));
  }
  CHECK_FALSE(w.out.begin_wait());
  CHECK(written == all);
  CHECK(w.there->taken == all);
  CHECK(finished == 4);
}

TEST_CASE("bulk_out: what a turn has not taken is withdrawn, by number, and nothing else") {
  open_way w;
  for (std::uint64_t i = 0; i < 5; ++i) w.out.push(3 * i, make_frame(i, 0, {900'000}));
  w.there->takes = 1000;
  static_cast<void>(w.write());  // two frames are in its hands
  CHECK_FALSE(w.out.can_withdraw(0));
  CHECK_FALSE(w.out.can_withdraw(3));
  CHECK_FALSE(w.out.can_withdraw(7));
  REQUIRE(w.out.can_withdraw(9));
  CHECK(w.out.withdraw(9).header.call == 3);
  CHECK(w.out.withdraw(9).head.size() == 0);
  CHECK(w.out.waiting() == 4);
  std::vector<std::uint64_t> sent;
  for (int i = 0; i < 20 && w.out.waiting() > 0; ++i) {
    w.there->takes = 10'000'000;
    for (const auto& f : w.write().finished) sent.push_back(f.header.call);
  }
  CHECK(sent == std::vector<std::uint64_t>{0, 1, 2, 4});
  CHECK(w.out.waiting_bytes() == 0);
}

TEST_CASE("bulk_out: closed while a turn is under way, the connection closes behind it") {
  open_way w;
  for (std::uint64_t i = 0; i < 3; ++i) w.out.push(i, make_frame(i, 0, {900'000}));
  REQUIRE(w.out.begin_turn());
  const auto left = w.out.close();
  CHECK(left.withdrawn.size() == 1);  // the one that it had not taken
  CHECK_FALSE(w.there->closed);
  const auto turn = w.out.end_turn(w.out.write());
  CHECK(w.there->closed);
  CHECK(w.out.waiting() == 0);
  CHECK(w.out.waiting_bytes() == 0);
  CHECK_FALSE(w.out.begin_turn());
  CHECK_FALSE(w.out.begin_wait());
  open_way idle;
  static_cast<void>(idle.out.close());
  CHECK(idle.there->closed);
}

}  // namespace
