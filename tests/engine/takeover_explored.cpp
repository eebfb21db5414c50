// SPDX-License-Identifier: BSL-1.0
// A worker whose links are read by its own thread when it is at its loop, and by its helper while it
// is not, in every schedule: frames come, handlers begin and end, one for ever. Nothing that has
// come may lie unread, and a helper may not tick for ever where nothing moves.
#include "core/explore.hpp"
#include <weft/engine/helper/takeover.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using weft::engine::takeover;

template struct exploring::revealed<takeover, &takeover::state_, &takeover::probing_,
                                    &takeover::came_, &takeover::activity_>;

namespace takeovers {

using exploring::encoder;
using exploring::hold;

struct world {
  enum class act : std::uint8_t {
    send,
    read,
    answer,
    compute,
    send_and_compute,
    come_back,
    stick,
    tick,
    ring
  };
  struct move {
    act what;
  };

  int frames = 2;    // that the peer has yet to send
  int handlers = 2;  // that will compute for some time
  bool may_stick = true;
  // A socket that has something to be read rings whenever one begins to wait for it, but the worker
  // may see a probe before it. What has no descriptor rings once for each frame, and is read in turn
  // with the probe.
  bool level = true;

  // The worker's thread:
  bool at_loop = true;
  bool stuck = false;
  int unread = 0;
  bool before_probe = false;  // some of it came before the probe was sent
  bool probe = false;         // is on its way to it
  // The helper:
  takeover it{};
  bool answered = true;
  bool armed = false;
  bool waits = true;     // for arrivals
  bool latched = false;  // something came while it did not
  bool rings = false;    // what it waited for is on its way to it
  std::uint64_t rounds = 0;

  std::vector<move> moves() const {
    std::vector<move> out;
    const auto may = [&](bool now, act what) {
      if (now) out.push_back({what});
    };
    may(frames > 0, act::send);
    may(at_loop && unread > 0, act::read);
    may(at_loop && probe && (level || !before_probe), act::answer);
    may(at_loop && handlers > 0, act::compute);
    may(at_loop && handlers > 0, act::send_and_compute);
    may(!at_loop && !stuck, act::come_back);
    may(at_loop && may_stick, act::stick);
    may(armed, act::tick);
    may(rings, act::ring);
    return out;
  }
  static bool optional(const move& m) { return m.what == act::stick; }
  std::string name(const move& m) const {
    static constexpr const char* names[] = {
        "send", "read", "answer", "compute", "send, compute", "come back", "stick", "tick", "ring"};
    return names[static_cast<int>(m.what)];
  }
  void make(const move& m) {
    switch (m.what) {
    case act::send:
      --frames;
      ++unread;
      (waits ? rings : latched) = true;
      waits = false;
      break;
    case act::read:
      unread = 0;
      before_probe = false;
      ++rounds;
      break;
    case act::answer:
      probe = false;
      answered = true;
      break;
    case act::send_and_compute:  // what it sends is to be written in time
      armed = true;
      [[fallthrough]];
    case act::compute:  // a user's own handler, which says nothing to anybody
      --handlers;
      at_loop = false;
      break;
    case act::come_back:
      at_loop = true;
      break;
    case act::stick:
      may_stick = false;
      stuck = true;
      at_loop = false;
      break;
    case act::tick:
      armed = false;
      take(it.ticked(rounds, answered));
      break;
    case act::ring:
      rings = false;
      take(it.arrived(answered));
      break;
    }
  }
  void audit() const {}
  void finish() const {
    hold(unread == 0, "something that has come lies unread");
    hold(stuck || it.current_state() == takeover::state::asleep ||
             it.current_state() == takeover::state::reading,
         "it watches, and never looks again");
    if (!stuck) hold(waits, "it hears of nothing");
  }
  void encode(encoder& e) const {
    e << static_cast<unsigned>(frames) << static_cast<unsigned>(handlers) << may_stick << at_loop
      << stuck << static_cast<unsigned>(unread) << before_probe << probe << answered << armed
      << waits << latched << rings;
    exploring::with_members(it, [&](auto state, bool probing, bool came, std::uint64_t seen) {
      e << static_cast<unsigned>(state) << probing << came << (seen == rounds);
    });
  }

 private:
  void take(takeover::steps next) {
    if (next.wait && !waits && !rings) {
      rings = latched || (level && unread > 0);
      waits = !rings;
      latched = false;
    }
    if (next.probe) {
      hold(!probe, "one probe at a time");
      probe = true;
      before_probe = unread > 0;
      answered = false;
    }
    if (next.read) {
      hold(!at_loop || probe, "it reads beside a worker that has answered");
      unread = 0;
      before_probe = false;
    }
    if (next.tick || next.later) armed = true;
  }
};

}  // namespace takeovers

TEST_CASE("takeover, explored: nothing lies unread, whenever the worker computes") {
  takeovers::world sockets;
  exploring::explore("sockets", sockets, 200'000);
  takeovers::world pipes;
  pipes.level = false;
  exploring::explore("what has no descriptor", pipes, 200'000);
}
