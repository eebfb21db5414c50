// SPDX-License-Identifier: BSL-1.0
// Two of three workers that open connections to each other at once, in every schedule: their
// handshakes, and which connection they decide for, are the real ones. Connections break, and are
// given up.
#include "core/explore.hpp"
#include <weft/engine/link/handshake.hpp>
#include <weft/engine/link/pairing.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using weft::engine::handshake;

template struct exploring::revealed<handshake, &handshake::peer_, &handshake::their_nonce_,
                                    &handshake::step_, &handshake::now_, &handshake::member_>;
using weft::engine::pairing;

template struct exploring::revealed<pairing, &pairing::opening_, &pairing::reserved_,
                                    &pairing::wanted_>;

namespace meeting_schedules {

using exploring::encoder;
using exploring::hold;
using weft::errc;
using weft::error;
using weft::frame;
using weft::membership;
using side = std::uint32_t;  // 0 is rank 1, 1 is rank 2

constexpr std::uint32_t none = 0xff;

membership three(std::uint32_t rank) {
  membership all;
  all.rank = rank;
  all.token = {0xabc, 0xdef};
  for (std::uint32_t r = 0; r < 3; ++r) {
    all.members.push_back({"w" + std::to_string(r), "", {5, r}, {}});
  }
  return all;
}
const membership& members_of_side(side s) {
  static const std::array<membership, 2> both{three(1), three(2)};
  return both[s];
}
std::string text_of(const frame& f) {
  const auto bytes = f.payload();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct plan {
  bool both_open = false;  // else only rank 2 wants a link
  unsigned breaks = 0;     // a connection is lost
  unsigned given_up = 0;   // who opened it waits no longer
  unsigned sends = 0;      // rank 1 has something to send, and else wants no link
  unsigned withdraws = 0;  // ... and takes it back
};

struct world {
  enum class act : std::uint8_t { want, deliver, notice_end, retry, lose, give_up, send, withdraw };
  struct move {
    act what;
    std::uint32_t a = 0;  // a side, or a connection
    side to = 0;
  };
  struct said {
    weft::frame_kind kind{};
    std::string text;
  };
  struct connection {
    side opener = 0;
    std::array<std::optional<handshake>, 2> talks;  // by side
    std::array<std::vector<said>, 2> wires;         // to that side
    std::array<bool, 2> open{true, true};           // at that side
    bool welcomed = false;
    bool broken = false;
  };
  using state = pairing::state;
  struct link {
    explicit link(side s) : meets(1 + s, 2 - s) {}
    [[nodiscard]] state current_state() const { return meets.current_state(); }
    [[nodiscard]] bool opening() const { return has<0>(); }
    [[nodiscard]] bool reserved() const { return has<1>(); }
    [[nodiscard]] bool wanted() const { return has<2>(); }

    pairing meets;
    bool retries = false;
    bool waits = false;  // something, to be sent
    std::uint32_t installed = none;

   private:
    template <int I>
    [[nodiscard]] bool has() const {
      return exploring::with_members(meets, [](bool opening, bool reserved, bool wanted) {
        return std::array<bool, 3>{opening, reserved, wanted}[I];
      });
    }
  };

  explicit world(const plan& p) : rules(p) {}

  // ── moves ──

  static bool optional(const move& m) { return m.what >= act::lose; }
  std::vector<move> moves() const {
    std::vector<move> out;
    for (side s = 0; s < 2; ++s) {
      if (!links[s].wanted() && (rules.both_open || s == 1)) out.push_back({act::want, s, s});
      if (links[s].retries) out.push_back({act::retry, s, s});
      const state now = links[s].current_state();
      if (rules.sends > 0 && s == 0 && (now == state::idle || now == state::connecting)) {
        out.push_back({act::send, s, s});
      }
      if (rules.withdraws > 0 && links[s].waits) out.push_back({act::withdraw, s, s});
    }
    for (std::uint32_t c = 0; c < slots.size(); ++c) {
      if (!slots[c]) continue;
      const connection& at = **slots[c];
      for (side s = 0; s < 2; ++s) {
        if (!at.open[s]) continue;
        const bool ended = !at.open[1 - s] || at.broken;
        if (!at.wires[s].empty()) {
          out.push_back({act::deliver, c, s});
        } else if (ended) {
          out.push_back({act::notice_end, c, s});
        }
      }
      if (rules.breaks > 0 && !at.broken) out.push_back({act::lose, c});
      if (rules.given_up > 0 && at.open[at.opener] && talks(at, at.opener)) {
        out.push_back({act::give_up, c, at.opener});
      }
    }
    return out;
  }
  std::string name(const move& m) const {
    static constexpr std::array<const char*, 8> words{
        "wants a link",       "a frame arrives",        "the end arrives",       "tries again",
        "connection is lost", "connection is given up", "has something to send", "takes it back"};
    std::string out = std::to_string(m.a) + " at " + std::to_string(m.to) + ": " +
                      words[static_cast<std::size_t>(m.what)];
    if (m.what == act::deliver) {
      out +=
          " of kind " + std::to_string(static_cast<int>((*slots[m.a])->wires[m.to].front().kind));
    }
    return out;
  }
  void make(const move& m) {
    switch (m.what) {
    case act::want:
      links[m.a].meets.keep_up();
      if (links[m.a].meets.want()) begin_connecting(m.a);
      break;
    case act::send:
      --rules.sends;
      links[m.a].waits = true;
      if (links[m.a].meets.want()) begin_connecting(m.a);
      break;
    case act::withdraw:
      --rules.withdraws;
      links[m.a].waits = false;
      break;
    case act::retry:
      links[m.a].retries = false;
      begin_connecting(m.a);
      break;
    case act::deliver:
      deliver(m.a, m.to);
      break;
    case act::notice_end:
      end_of(m.a, m.to, error(errc::peer_died, "closed"));
      break;
    case act::lose:
      --rules.breaks;
      change(m.a).broken = true;
      change(m.a).wires = {};
      lost_one_in_use = lost_one_in_use || links[0].installed == m.a || links[1].installed == m.a;
      break;
    case act::give_up:
      --rules.given_up;
      end_of(m.a, m.to, error(errc::timed_out, "slow"));
      break;
    }
    for (auto& slot : slots) {
      if (slot && !(*slot)->open[0] && !(*slot)->open[1]) slot.reset();
    }
  }

  // ── what is promised ──

  void audit() const {
    for (side s = 0; s < 2; ++s) {
      const link& mine = links[s];
      const link& theirs = links[1 - s];
      hold((mine.current_state() == state::up) == (mine.installed != none), "up is connected", s);
      if (mine.current_state() != state::up) continue;
      hold(!mine.opening() && !mine.reserved(), "who is up looks for nothing more", s);
      hold(theirs.current_state() != state::up || theirs.installed == mine.installed,
           "both keep the same connection", s);
      hold(slots[mine.installed].has_value(), "what is in use is open", s);
      // The other one has it, too, or has said that it may, or has lost it.
      const connection& c = **slots[mine.installed];
      hold(c.welcomed, "nobody uses what was not welcomed", s);
      if (theirs.installed == mine.installed || c.broken || !c.open[1 - s]) continue;
      hold(c.opener == s && theirs.reserved(), "who welcomed it keeps its place", s);
    }
  }
  void finish() const {
    for (side s = 0; s < 2; ++s) {
      const link& mine = links[s];
      if (mine.current_state() == state::up)
        hold(links[1 - s].current_state() == state::up, "both have it", s);
      if (mine.current_state() == state::down) hold(lost_one_in_use, "nothing in use was lost", s);
      // Who was not told that it is in use may not have met the other at all.
      hold(mine.current_state() != state::connecting, "nobody waits for ever", s);
      hold(mine.current_state() != state::idle || (!mine.wanted() && !mine.waits),
           "who wants a link has one, or has lost it", s);
    }
  }
  void encode(encoder& e) const {
    e << rules.breaks << rules.given_up << rules.sends << rules.withdraws
      << (lost_one_in_use ? 1 : 0);
    for (const link& l : links) {
      e << static_cast<std::uint64_t>(l.current_state()) << (l.opening() ? 1 : 0)
        << (l.reserved() ? 1 : 0) << (l.wanted() ? 1 : 0) << (l.retries ? 1 : 0)
        << (l.waits ? 1 : 0) << l.installed;
    }
    for (const auto& slot : slots) {
      e << (slot ? 1 : 0);
      if (slot) encode(e, **slot);
    }
  }

 private:
  static void encode(encoder& e, const connection& c) {
    e << c.opener << (c.welcomed ? 1 : 0) << (c.broken ? 1 : 0);
    for (side s = 0; s < 2; ++s) {
      e << (c.open[s] ? 1 : 0) << (c.talks[s] ? 1 : 0);
      e.list(c.wires[s], [&](const said& f) {
        e << static_cast<std::uint64_t>(f.kind) << std::string_view(f.text);
      });
      if (!c.talks[s]) continue;
      exploring::with_members(*c.talks[s], [&](std::uint32_t peer, const weft::id128& nonce,
                                               auto step, auto now, bool member) {
        e << peer << nonce.high << nonce.low << static_cast<std::uint64_t>(step)
          << static_cast<std::uint64_t>(now) << (member ? 1 : 0);
      });
    }
  }

  connection& change(std::uint32_t c) { return slots[c]->change(); }
  static bool talks(const connection& c, side s) {
    return c.talks[s] && c.talks[s]->current_state() == handshake::state::waiting;
  }
  void say(std::uint32_t c, side to, const frame& f) {
    connection& at = change(c);
    if (at.open[to] && !at.broken) at.wires[to].push_back({f.header.kind, text_of(f)});
  }

  void begin_connecting(side s) {
    link& l = links[s];
    if (!l.meets.open()) return;
    const auto free = std::find(slots.begin(), slots.end(), std::nullopt);
    hold(free != slots.end(), "there are never so many connections");
    const auto c = static_cast<std::uint32_t>(free - slots.begin());
    free->emplace(std::in_place);
    weft::random_source nonces = [s, n = std::uint64_t{0}]() mutable { return 100 * s + ++n; };
    change(c).opener = s;
    change(c).talks[s].emplace(members_of_side(s), 2 - s, nonces);
    weft::random_source others = [s, n = std::uint64_t{0}]() mutable { return 500 * s + ++n; };
    change(c).talks[1 - s].emplace(members_of_side(1 - s), others);
    say(c, 1 - s, change(c).talks[s]->hello());
  }
  void deliver(std::uint32_t c, side s) {
    const said first = change(c).wires[s].front();
    change(c).wires[s].erase(change(c).wires[s].begin());
    if (links[s].installed == c) return;
    weft::message m;
    m.payload().raw(first.text.data(), first.text.size());
    weft::frame_header header;
    header.kind = first.kind;
    handshake& h = *change(c).talks[s];
    if (auto answer = h.arrived(std::move(m).finish(header))) say(c, 1 - s, *answer);
    using stage = handshake::state;
    if (h.current_state() == stage::proven) return judge(c, s);
    if (h.current_state() == stage::accepted) return install(c, s);
    if (h.current_state() == stage::refused) end_of(c, s, h.why());
  }
  /// link::reserve, of a connection that came from a member.
  void judge(std::uint32_t c, side s) {
    link& l = links[s];
    handshake& h = *change(c).talks[s];
    hold(h.peer() == 2 - s, "it is who it is");
    const pairing::welcome what = l.meets.reserve();
    if (what != pairing::welcome::yes) {
      const bool lost = what == pairing::welcome::down;
      say(c, 1 - s,
          h.refuse(lost ? error(errc::peer_died, "lost")
                        : error(errc::closed, "another connection between the two stays")));
      change(c).open[s] = false;
      return;
    }
    change(c).welcomed = true;
    say(c, 1 - s, h.welcome());
    if (h.current_state() == handshake::state::accepted) install(c, s);
  }
  void install(std::uint32_t c, side s) {
    link& l = links[s];
    if (l.meets.install()) {
      l.installed = c;
      l.waits = false;  // it is written
    } else {
      change(c).open[s] = false;
    }
  }
  /// The connection ends at `s`.
  void end_of(std::uint32_t c, side s, const error& why) {
    link& l = links[s];
    change(c).open[s] = false;
    change(c).wires[s].clear();
    if (l.installed == c) {
      l.installed = none;
      l.waits = false;
      l.meets.lose();
      return;
    }
    const bool opened = change(c).opener == s;
    if (opened) {
      cannot_connect(s, why);
    } else if (change(c).welcomed && l.meets.unreserve(l.waits)) {
      begin_connecting(s);
    }
  }
  void cannot_connect(side s, const error& why) {
    link& l = links[s];
    const bool refused = why != errc::closed && why != errc::timed_out && why != errc::peer_died;
    hold(!refused, "no member is refused for what it says, at", s);
    const bool matters = l.meets.failed();
    if (why == errc::peer_died && why.detail().text == "lost") {  // link::mark_down
      if (l.installed != none) change(std::exchange(l.installed, none)).open[s] = false;
      l.waits = false;
      l.meets.lose();
      return;
    }
    if (matters) l.retries = l.meets.tries_again(l.waits);
  }

  plan rules;
  std::array<link, 2> links{link(0), link(1)};
  std::array<std::optional<exploring::shared<connection>>, 6> slots{};
  bool lost_one_in_use = false;
};

TEST_CASE("handshake, explored: two that connect at once keep one connection, the same") {
  exploring::explore("one opens", world({.both_open = false}), 10'000);
  exploring::explore("both open", world({.both_open = true}), 100'000);
}

TEST_CASE("handshake, explored: connections that are lost or given up are opened again") {
  exploring::explore("one opens, two breaks", world({.breaks = 2}), 100'000);
  exploring::explore("one opens, and gives up", world({.breaks = 1, .given_up = 1}), 100'000);
  exploring::explore("both open, two breaks", world({.both_open = true, .breaks = 2}), 200'000);
  exploring::explore("both open, one gives up", world({.both_open = true, .given_up = 1}), 200'000);
}

TEST_CASE("handshake, explored: who only has something to send connects for that, and no longer") {
  exploring::explore("it may be lost", world({.breaks = 2, .sends = 1, .withdraws = 1}), 200'000);
  exploring::explore("it may be given up", world({.given_up = 2, .sends = 2, .withdraws = 1}),
                     200'000);
  exploring::explore("both", world({.breaks = 1, .given_up = 1, .sends = 1, .withdraws = 1}),
                     200'000);
}

TEST_CASE("handshake, explored: more of everything" * doctest::skip(!exploring::widely())) {
  exploring::explore("both open, a break, one given up",
                     world({.both_open = true, .breaks = 1, .given_up = 1}), 200'000);
}

}  // namespace meeting_schedules
