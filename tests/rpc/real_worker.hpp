// SPDX-License-Identifier: BSL-1.0
// One real worker among others that the test plays over TCP. What it says is compared with literal
// frames, and what it hears are such. Whoever instantiates it compiles a whole worker, for seconds.
#pragma once

#include <weft/engine/services/services.hpp>
#include <weft/transport/tcp.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <rpc/raw_peer.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <wire/literal.hpp>

namespace weft::testing {

/// A frame that worker `by` says.
struct line {
  std::uint32_t by;
  std::string_view frame;
};

/// The end of a connection that the test plays as worker `rank`.
class played_end {
 public:
  played_end(raw_peer&& connected, std::uint32_t rank) : peer_(std::move(connected)), rank_(rank) {}

  /// Its own lines are said, the other worker's must be heard: between two own ones, those about
  /// references one after another, and the rest so too.
  void play(std::initializer_list<line> lines) {
    for (auto l = lines.begin(); l != lines.end();) {
      if (l->by == rank_) {
        say((l++)->frame);
        continue;
      }
      std::deque<std::string_view> references, rest;
      for (; l != lines.end() && l->by != rank_; ++l) {
        const bool about = weft_test::frame_in(l->frame).header.kind == frame_kind::rref;
        (about ? references : rest).push_back(l->frame);
      }
      hear(std::move(references), std::move(rest));
    }
  }

 private:
  void hear(std::deque<std::string_view> references, std::deque<std::string_view> rest) {
    while (!references.empty() || !rest.empty()) {  // bounded: each round hears one, or fails
      const bool ping =
          !rest.empty() && weft_test::frame_in(rest.front()).header.kind == frame_kind::ping;
      auto f = ping ? peer_.read_any() : peer_.read();
      REQUIRE(f);
      auto& expected = f->header.kind == frame_kind::rref ? references : rest;
      REQUIRE_FALSE(expected.empty());
      compare(*std::move(f), expected.front());
      expected.pop_front();
    }
  }
  void say(std::string_view literal) {
    frame f = weft_test::frame_in(literal);
    if (const auto other = calls_.find(f.header.call); other != calls_.end()) {
      f.header.call = other->second;
      f.seal();
    }
    REQUIRE(peer_.send(f));
  }
  /// But for what the worker is free to choose: the numbers of its calls, and how much of a
  /// deadline is left.
  void compare(frame&& f, std::string_view literal) {
    const frame_header expected = weft_test::frame_in(literal).header;
    frame_header& h = f.header;
    if (h.kind == frame_kind::request && h.call != 0) calls_[expected.call] = h.call;
    const auto other = calls_.find(expected.call);
    if (other != calls_.end() && other->second == h.call) h.call = expected.call;
    if (h.deadline != 0 && h.deadline < expected.deadline) h.deadline = expected.deadline;
    f.seal();
    REQUIRE(weft_test::hex(f) == std::string(literal));
  }

  raw_peer peer_;
  std::uint32_t rank_;
  std::map<std::uint64_t, std::uint64_t> calls_;  // of the worker, by those of the literals
};

/// Runs as worker `rank` of `size`, to which the others grant such a window.
template <class... Services>
class real_worker {
 public:
  using main_function = std::function<asio::awaitable<void>(worker&)>;

  real_worker(std::uint32_t rank, std::uint32_t size, main_function main_,
              std::uint64_t granted = member().window)
      : life_(engine::transports_of(tcp()), options(), engine::services<Services...>()) {
    all_.rank = rank;
    all_.token = {0x746f6b656e, 0x1234};
    for (std::uint32_t r = 0; r < size; ++r) {
      member m{"worker" + std::to_string(r), "", {1, r}, {{"tcp", others_.endpoint()}}, granted};
      if (r == rank) m.addresses = life_.addresses();
      all_.members.push_back(std::move(m));
    }
    life_.join(all_);
    thread_ = std::thread([this, m = std::move(main_)] { end_ = life_.run(m); });
  }
  real_worker(const real_worker&) = delete;
  real_worker& operator=(const real_worker&) = delete;
  ~real_worker() {
    if (thread_.joinable()) thread_.join();
  }

  /// Worker `other`, connected: worker 1 connects to worker 0, and this one to all others.
  [[nodiscard]] played_end meet(std::uint32_t other) {
    if (all_.rank == 0 && other == 1) {
      raw_peer p(life_.addresses().front().endpoint);
      REQUIRE(p.greet(all_, other, all_.rank));
      return {std::move(p), other};
    }
    raw_peer p = others_.accept();
    REQUIRE(p.answer(all_, other));
    return {std::move(p), other};
  }
  /// How its run ended. Nobody plays any more.
  [[nodiscard]] error end() {
    thread_.join();
    return end_;
  }

 private:
  raw_listener others_;
  engine::runtime life_;
  membership all_;
  error end_;
  std::thread thread_;
};

}  // namespace weft::testing
