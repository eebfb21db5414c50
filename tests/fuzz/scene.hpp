// SPDX-License-Identifier: BSL-1.0
// A real worker in a simulated world, and the bytes of its only peer in the test's hands.
#pragma once

#include <weft/engine/link/handshake.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/engine/services/services.hpp>
#include <weft/rpc/expose.hpp>
#include <weft/rpc/function.hpp>
#include <weft/rref/service.hpp>
#include <weft/sim/host.hpp>
#include <weft/sim/transports.hpp>

#include <array>
#include <chrono>
#include <core/for_ever.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <transport/feeding.hpp>
#include <utility>
#include <vector>
#include <wire/sent_over.hpp>

namespace weft_fuzz {

using namespace std::chrono_literals;
using weft::frame;
using weft::frame_kind;

/// A function that the worker serves.
struct known {
  std::uint64_t id;
  std::uint32_t signature;
};
template <auto F>
known one() {
  weft::expose<F>();
  return {weft::function<F>::id(), weft::function<F>::signature};
}

/// Worker 0, and the test as worker 1, which has proved to be one.
class scene {
 public:
  explicit scene(const weft::engine::service_makers& services)
      : net_(time_, decides_, 2, {}), victim_(time_, 0, settings(), 0), calls_(net_) {
    weft::membership all;
    all.token.low = 5;
    for (std::uint32_t r = 0; r < 2; ++r) {
      weft::member m;
      m.name = "worker" + std::to_string(r);
      m.incarnation.low = r + 1;
      all.members.push_back(std::move(m));
    }
    all.members.change(0).addresses =
        victim_.listen(weft::engine::transports_of(weft::sim::bytes(net_, 0)));
    mine_ = all;
    mine_.rank = 1;
    victim_.start(
        std::move(all), weft::sim::splitmix(1), services,
        [](weft::worker&) -> asio::awaitable<void> { co_await weft::testing::for_ever(); });
    if (!greet(calls_, weft::engine::handshake::purpose::calls)) std::abort();
  }
  ~scene() { victim_.kill(); }
  scene(const scene&) = delete;
  scene& operator=(const scene&) = delete;

  void say(std::span<const std::byte> bytes) { say(calls_, bytes); }
  /// By a connection for large tensors, which is opened first, if the link lives. Once.
  void say_as_bulk(std::span<const std::byte> bytes) {
    bulk_.emplace(net_);
    if (greet(*bulk_, weft::engine::handshake::purpose::bulk)) say(*bulk_, bytes);
  }
  /// All that the victim has said.
  void hear() { hear(calls_); }
  void run(weft::duration most) {
    const weft::time_point until = weft::later(time_.now(), most);
    for (;;) {  // bounded: by virtual time
      bool ran = false;
      for (std::uint32_t i = 0; i < victim_.threads(); ++i) ran = victim_.step(i) || ran;
      io_.restart();
      ran = io_.poll() > 0 || ran;
      if (ran) {
        time_.pass(1us);
        continue;
      }
      if (time_.empty() || time_.next() > until) return;
      time_.step();
    }
  }
  [[nodiscard]] weft::sim::host& victim() noexcept { return victim_; }

 private:
  static weft::options settings() {
    weft::options o;
    o.io_threads = 1;
    o.waiting = 0s;
    o.lost_after = 0s;
    o.rendezvous_deadline = 1h;
    o.on_loss = weft::loss_policy::go_on();
    o.bounds.link_tensor_bytes = 1u << 20;
    return o;
  }
  struct way {
    explicit way(weft::sim::network& net)
        : there(weft::make_intrusive<weft::sim::detail::byte_channel>(net, 1, 0)),
          back(weft::make_intrusive<weft::sim::detail::byte_channel>(net, 0, 1)) {}
    weft::intrusive_ptr<weft::sim::detail::byte_channel> there, back;
    weft::intrusive_ptr<weft::sim::connect_attempt> attempt;
    weft::frame_assembler assembler;
  };
  bool greet(way& by, weft::engine::handshake::purpose what) {
    by.attempt = weft::make_intrusive<weft::sim::connect_attempt>(net_, io_, by.there, by.back);
    run(1ms);
    weft::random_source random = [state = std::uint64_t{1}]() mutable { return ++state; };
    weft::engine::handshake h(mine_, 0, random, what);
    hears_.greeting = &h;
    say(by, weft::testing::wire(h.hello()));
    for (int i = 0; i < 20 && h.current_state() == weft::engine::handshake::state::waiting; ++i) {
      run(1ms);
      hear(by);
      for (const frame& f : std::exchange(hears_.answers, {})) say(by, weft::testing::wire(f));
    }
    hears_.greeting = nullptr;
    run(1ms);
    return h.current_state() == weft::engine::handshake::state::accepted;
  }
  static void say(way& by, std::span<const std::byte> bytes) {
    std::error_code ec;
    while (!bytes.empty()) {  // bounded: by the bytes
      const asio::const_buffer one(bytes.data(), bytes.size());
      const std::size_t n = by.there->put(weft::const_buffer_list(&one, 1), ec);
      if (n == 0) return;
      bytes = bytes.subspan(n);
    }
  }
  void hear(way& by) {
    std::array<std::byte, 4096> part;
    for (;;) {  // bounded: by what there is
      std::error_code ec;
      const std::size_t n = by.back->take(std::array{asio::buffer(part)}, ec);
      if (n == 0) return;
      if (auto e = weft::testing::feed(by.assembler, hears_, {part.data(), n},
                                       [] { return std::size_t{4096}; })) {
        std::cerr << "the victim said what is no frame: " << e->message() << '\n';
        std::abort();
      }
    }
  }
  struct hears final : weft::frame_sink {
    [[nodiscard]] const weft::limits& bounds() const noexcept override { return limits; }
    [[nodiscard]] weft::expected<weft::blob> allocate(std::size_t size) override {
      return weft_test::copy_of(std::vector<std::byte>(size));
    }
    [[nodiscard]] weft::expected<void> frame_arrived(frame&& f) override {
      if (!greeting) return {};
      if (auto answer = greeting->arrived(std::move(f))) answers.push_back(*std::move(answer));
      return {};
    }
    void progress() noexcept override {}
    weft::engine::handshake* greeting = nullptr;
    std::vector<frame> answers;
    weft::limits limits{};
  };

  weft::sim::timeline time_;
  weft::sim::choices decides_{std::vector<std::uint32_t>{}};
  weft::sim::network net_;
  asio::io_context io_{1};
  weft::sim::host victim_;
  weft::membership mine_;
  way calls_;
  std::optional<way> bulk_;
  hears hears_;
};

/// As if a message's rref section had been read: three references to objects of nobody, at a worker
/// that hears of none of them.
inline void refer_to_nobody(weft::message_extensions& record) {
  static scene& with = *new scene(weft::engine::services<weft::rref_service>());
  auto& handover = record.get<weft::rref_handover>();
  handover.here = &with.victim().worker();
  for (std::uint32_t i = 0; i < 3; ++i) {
    handover.references.push_back(weft::make_intrusive<weft::detail::reference>(
        weft::rref_id{i % 2, 1, i + 1}, weft::error(weft::errc::rref_lost, "of nobody")));
  }
}

}  // namespace weft_fuzz
