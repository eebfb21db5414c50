// SPDX-License-Identifier: BSL-1.0
// A member that has proved to be one, and then says whatever it likes to a real worker, in a
// simulated world: the worker neither crashes nor ends, nor leaves anything behind.
//
// The first byte of an input says whether bytes follow, or frames that are written out of
// {kind, flags, call, which function, sections, payload's length (2), payload}.
#include <weft/engine/handshake.hpp>
#include <weft/engine/rref_service.hpp>
#include <weft/engine/services.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/sim/host.hpp>
#include <weft/sim/transports.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>
#include <system_error>
#include <transport/feeding.hpp>
#include <utility>
#include <vector>
#include <wire/sent_over.hpp>

namespace hostile_link {

using namespace std::chrono_literals;
using weft::frame;
using weft::frame_kind;

struct thing {
  std::uint64_t number = 1;
  std::uint64_t plus(std::uint64_t x) { return number + x; }
};

std::uint64_t plain(std::uint64_t x) { return x; }
std::vector<std::string> texts(std::vector<std::string> all) { return all; }
asio::awaitable<std::uint64_t> slow(weft::worker& me, std::uint64_t x) {
  const auto over = weft::make_intrusive<weft::event>();
  const auto t = me.time().make_timer(weft::detail::context_of(me));
  t->arm(weft::later(me.time().now(), 10ms), [over] { over->set(); });
  co_await weft::event::wait(over);
  co_return x;
}
thing make(std::uint64_t x) { return {x}; }
asio::awaitable<weft::rref<thing>> pass(weft::rref<thing> it) { co_return it; }

struct known {
  std::uint64_t id;
  std::uint32_t signature;
};
template <auto& F>
known one() {
  using f = weft::function<&F>;
  return {f::id(), f::signature};
}
const std::array<known, 6>& functions() {
  static const std::array<known, 6> all = {one<plain>(), one<texts>(), one<slow>(),
                                           one<make>(),  one<pass>(),  known{7, 7}};
  return all;
}

class scene {
 public:
  scene()
      : net_(time_, decides_, 2, {}),
        victim_(time_, 0, settings(), 0),
        there_(weft::make_intrusive<weft::sim::detail::byte_channel>(net_, 1, 0)),
        back_(weft::make_intrusive<weft::sim::detail::byte_channel>(net_, 0, 1)) {
    weft::membership all;
    all.token.low = 5;
    for (std::uint32_t r = 0; r < 2; ++r) {
      weft::member m;
      m.name = "worker" + std::to_string(r);
      m.incarnation.low = r + 1;
      all.members.push_back(std::move(m));
    }
    all.members[0].addresses =
        victim_.listen(weft::engine::transports_of(weft::sim::bytes(net_, 0)));
    mine_ = all;
    mine_.rank = 1;
    victim_.start(std::move(all), weft::sim::splitmix(1),
                  weft::engine::services<weft::rref_service>(),
                  [](weft::worker&) -> asio::awaitable<void> {
                    co_await weft::event::wait(weft::make_intrusive<weft::event>());
                  });
    attempt_ = weft::make_intrusive<weft::sim::connect_attempt>(net_, io_, there_, back_);
    run(1ms);
    weft::random_source random = [state = std::uint64_t{1}]() mutable { return ++state; };
    weft::engine::handshake h(mine_, 0, random);
    hears_.greeting = &h;
    say(weft::testing::wire(h.hello()));
    for (int i = 0; i < 20 && h.now() == weft::engine::handshake::state::waiting; ++i) {
      run(1ms);
      hear();
      for (const frame& f : std::exchange(hears_.answers, {})) say(weft::testing::wire(f));
    }
    if (h.now() != weft::engine::handshake::state::accepted) std::abort();
    hears_.greeting = nullptr;
    run(1ms);
  }
  ~scene() { victim_.kill(); }
  scene(const scene&) = delete;
  scene& operator=(const scene&) = delete;

  void say(std::span<const std::byte> bytes) {
    std::error_code ec;
    while (!bytes.empty()) {  // bounded: by the bytes
      const asio::const_buffer one(bytes.data(), bytes.size());
      const std::size_t n = there_->put(weft::const_buffer_list(&one, 1), ec);
      if (n == 0) return;
      bytes = bytes.subspan(n);
    }
  }
  /// All that the victim has said.
  void hear() {
    std::array<std::byte, 4096> part;
    for (;;) {  // bounded: by what there is
      std::error_code ec;
      const std::size_t n = back_->take(std::array{asio::buffer(part)}, ec);
      if (n == 0) return;
      if (auto e = weft::testing::feed(assembler_, hears_, {part.data(), n},
                                       [] { return std::size_t{4096}; })) {
        std::cerr << "the victim said what is no frame: " << e->message() << '\n';
        std::abort();
      }
    }
  }
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
  weft::intrusive_ptr<weft::sim::detail::byte_channel> there_, back_;
  weft::intrusive_ptr<weft::sim::connect_attempt> attempt_;
  weft::frame_assembler assembler_;
  hears hears_;
};

/// The frames that those bytes describe.
std::vector<std::byte> written_out(std::span<const std::byte> in) {
  std::vector<std::byte> out;
  constexpr std::size_t head = 7;
  while (in.size() >= head) {  // bounded: by the bytes
    const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(in[i]); };
    const std::size_t size =
        std::min<std::size_t>(at(5) | std::size_t{at(6)} << 8, in.size() - head);
    weft::message m;
    m.payload().raw(in.data() + head, size);
    // The first part of the payload also as sections, as many as it says.
    for (int i = 0; i < at(4) % 4; ++i) {
      m.section(static_cast<weft::section_kind>((at(4) >> 2) + i),
                in.subspan(head, std::min<std::size_t>(size, 64)));
    }
    weft::frame_header h;
    h.kind = static_cast<frame_kind>(at(0));
    h.flags = at(1);
    h.call = at(2) == 0 ? 0 : std::uint64_t{at(2)} << 32 | (at(2) % 4);
    const known& f = functions()[at(3) % functions().size()];
    h.function = at(3) < 128 ? f.id : at(3) - 128u;  // of a reply or a window: its credit
    h.signature = f.signature;
    h.deadline = at(2) % 3 == 0 ? 0 : 1000u * at(2);
    const frame whole = std::move(m).finish(h);
    const std::vector<std::byte> all = weft::testing::wire(whole);
    out.insert(out.end(), all.begin(), all.end());
    in = in.subspan(head + size);
  }
  return out;
}

}  // namespace hostile_link

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::cerr.setstate(std::ios::badbit);  // what the worker says of its peer
  return 0;
}
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace std::chrono_literals;
  if (size < 1) return 0;
  const std::span<const std::byte> in(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  hostile_link::scene s;
  if (data[0] % 4 == 0) {
    s.say(in);
  } else {
    s.say(hostile_link::written_out(in));
  }
  s.run(100ms);
  s.hear();
  s.run(100ms);
  // It may be left behind, and the run goes on.
  if (!s.victim().alive() || s.victim().ended()) std::abort();
  return 0;
}
