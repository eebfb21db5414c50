// SPDX-License-Identifier: BSL-1.0
// What happens on the wires of a world without workers, as one number for each seed, which every
// compiler must print: choices, virtual time, clocks, and channels with faults. Nothing here is a
// coroutine, as some compilers that should be asked miscompile those; so engine and programs, and
// who connects to whom, are not in these numbers.
#include <weft/sim/detail/byte_stream.hpp>
#include <weft/sim/detail/frame_channel.hpp>
#include <weft/sim/network.hpp>
#include <weft/sim/timeline.hpp>

#include <asio/buffer.hpp>
#include <asio/io_context.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace weft;

class log {
 public:
  explicit log(sim::timeline& time) : time_(time) {}
  void note(std::uint64_t what) {
    mix(static_cast<std::uint64_t>(time_.now().time_since_epoch().count()));
    mix(what);
  }
  void note_bytes(const void* data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) mix(static_cast<const unsigned char*>(data)[i]);
    note(size);
  }
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

 private:
  void mix(std::uint64_t what) { hash_ = (hash_ ^ what) * 0x100000001b3u; }
  sim::timeline& time_;
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

/// One direction between two hosts.
class way {
 public:
  virtual ~way() = default;
  /// About so much is written, as far as there is room.
  virtual void put(std::uint32_t size) = 0;
  virtual void close() = 0;
  [[nodiscard]] virtual bool ended() const = 0;
};

template <class Channel>
class way_of : public way {
 public:
  way_of(sim::network& net, sim::host_id from, sim::host_id to, asio::io_context& io, log& into)
      : log_(into), over_(make_intrusive<Channel>(net, from, to)) {
    over_->set_reader(reads_ = make_intrusive<weft::detail::pipe_waiter>(io));
    over_->set_writer(writes_ = make_intrusive<weft::detail::pipe_waiter>(io));
    reads_->when_woken([this] { read(); });
    writes_->when_woken([this] { log_.note(1'000'001); });
    reads_->wake();
  }
  void close() override { over_->writer_gone(); }
  [[nodiscard]] bool ended() const override { return ended_; }

 protected:
  /// Whether there may be more.
  virtual bool take() = 0;
  log& log_;
  const intrusive_ptr<Channel> over_;
  bool ended_ = false;

 private:
  void read() {
    while (take()) continue;  // bounded: by what has arrived
    if (!ended_) reads_->when_woken([this] { read(); });
  }
  intrusive_ptr<weft::detail::pipe_waiter> reads_, writes_;
};

class frames final : public way_of<sim::detail::frame_channel> {
 public:
  using way_of::way_of;
  void put(std::uint32_t size) override {
    frame f;
    f.header.call = ++last_;
    f.header.payload_bytes = size;
    f.head.resize(header_size + size);
    std::memset(f.head.data() + header_size, static_cast<int>(size & 0xff), size);
    f.seal();
    waits_.push(std::move(f));
    log_.note(static_cast<std::uint64_t>(over_->put(waits_)));
    waits_.finished().clear();
  }

 private:
  bool take() override {
    frame_queue got;
    const auto what = over_->take(got);
    log_.note(static_cast<std::uint64_t>(what));
    for (std::size_t i = 0; i < got.size(); ++i) {
      log_.note(got[i].header.call);
      log_.note_bytes(got[i].payload().data(), got[i].payload().size());
    }
    ended_ = what == sim::detail::frame_channel::taken::ended;
    return what == sim::detail::frame_channel::taken::frames;
  }
  outbox waits_;
  std::uint64_t last_ = 0;
};

class bytes final : public way_of<sim::detail::byte_channel> {
 public:
  using way_of::way_of;
  void put(std::uint32_t size) override {
    const std::string text(size, static_cast<char>('a' + size % 26));
    std::error_code ec;
    const asio::const_buffer all = asio::buffer(text);
    log_.note(over_->put({&all, 1}, ec));
    log_.note(ec ? 1 : 0);
  }

 private:
  bool take() override {
    std::array<char, 700> to;
    std::error_code ec;
    const std::size_t n = over_->take(asio::buffer(to), ec);
    log_.note_bytes(to.data(), n);
    ended_ = ec == asio::error::eof;
    return !ec;
  }
};

std::uint64_t hash_of(std::uint64_t seed) {
  constexpr std::uint32_t hosts = 3;
  sim::timeline time;
  sim::choices choose(seed);
  log into(time);
  asio::io_context io(1);
  sim::network net(time, choose, hosts, {.delay = 20us, .jitter = 3ms, .buffer_bytes = 5000});
  net.tells = [&](sim::host_id from, sim::host_id to, const char* what, std::uint64_t units) {
    into.note(from * 100 + to * 10 + static_cast<unsigned char>(*what));
    into.note(units);
  };
  sim::virtual_clock clock(time, static_cast<std::int32_t>(choose.pick(2001)) - 1000);
  const auto timer = clock.make_timer(io);

  std::vector<std::unique_ptr<way>> ways(2 * hosts * hosts);
  const auto begin = [&](std::size_t at) {
    const auto from = static_cast<sim::host_id>(at / 2 / hosts);
    const auto to = static_cast<sim::host_id>(at / 2 % hosts);
    if (at % 2 == 0) {
      ways[at] = std::make_unique<frames>(net, from, to, io, into);
    } else {
      ways[at] = std::make_unique<bytes>(net, from, to, io, into);
    }
  };
  for (std::size_t at = 0; at < ways.size(); ++at) begin(at);
  const auto some_host = [&] { return choose.pick(hosts); };
  for (int turn = 0; turn < 3000; ++turn) {
    const std::uint32_t what = choose.pick(40);
    const sim::host_id a = some_host();
    const sim::host_id b = some_host();
    const std::size_t at = choose.pick(static_cast<std::uint32_t>(ways.size()));
    if (what < 25) {
      ways[at]->put(choose.pick(2000));
    } else if (what == 25) {
      net.cut(a, b);
    } else if (what < 29) {
      net.heal(a, b);
    } else if (what == 29) {
      into.note(net.reset(a, b) ? 1 : 0);
    } else if (what == 30) {
      ways[at]->close();
    } else if (what < 33) {
      timer->arm(clock.now() + std::chrono::microseconds(choose.pick(5000)), [&] {
        into.note(static_cast<std::uint64_t>(clock.now().time_since_epoch().count()));
      });
    } else if (what == 33 && turn > 2500) {
      net.lose(a, turn > 2800);
    } else {
      time.pass(std::chrono::microseconds(choose.pick(500)));
    }
    io.restart();
    io.poll();
    if (!time.empty() && choose.pick(3) > 0) time.step();
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (ways[i]->ended()) begin(i);
    }
  }
  timer->cancel();
  return into.hash();
}

}  // namespace

int main() {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::printf("%llu %016llx\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(hash_of(seed)));
  }
}
