// SPDX-License-Identifier: BSL-1.0
// The windows of three workers that call each other, in every schedule: who waits for room, what is
// throttled until replies are written, or waits for an object that another call makes; between them
// links on which few frames fit. Nobody may wait for ever, and no byte of a window may go astray.
#include "core/explore.hpp"
#include <weft/engine/link/window.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using weft::engine::receive_window;
using weft::engine::send_window;

template struct exploring::revealed<send_window, &send_window::used_, &send_window::asked_>;
template struct exploring::revealed<receive_window, &receive_window::held_, &receive_window::owed_,
                                    &receive_window::unwritten_, &receive_window::starved_>;

namespace window_schedules {

using exploring::encoder;
using exploring::hold;
using rank = std::uint32_t;

constexpr rank size = 3;
constexpr std::uint64_t granted = 8192;  // a quarter of it is worth a frame of its own
constexpr std::size_t wire_room = 1;     // frames
constexpr std::uint32_t none = 0xff;

struct call {
  rank from = 0;
  rank to = 0;
  std::uint64_t cost = 1024;
  std::uint64_t reply = 100;       // bytes; 0: nobody waits for one
  std::uint32_t object_of = none;  // does not begin before that call has ended
  std::uint32_t calls = none;      // its function waits for that call
  std::uint32_t after = none;      // its caller makes that call first
  bool may_give_up = false;        // while it has not left
};

struct world {
  enum class act : std::uint8_t { start, look, queue, write, read, make_object, finish, give_up };
  struct move {
    act what;
    std::uint32_t a = 0;  // a call, or a worker
    rank b = 0;
  };
  enum class stage : std::uint8_t {
    idle,
    in_line,
    looked,  // there was room
    under_way,
    waits_for_object,
    throttled,
    runs,
    calls_another,
    over
  };
  struct frame {
    enum class kind : std::uint8_t { request, reply, window } what = kind::request;
    std::uint32_t call = none;
    std::uint64_t credit = 0;
  };
  /// What `from` keeps of its link to `to`.
  struct end {
    send_window window{granted};
    receive_window given{granted, granted};
    std::vector<std::uint32_t> line;       // calls that wait for room
    std::vector<std::uint32_t> throttled;  // requests that wait for replies to be written
    std::vector<frame> outbox;
    std::vector<frame> wire;
  };

  explicit world(std::vector<call> c) : calls(std::move(c)), at(calls.size(), stage::idle) {
    for (rank i = 0; i < size * size; ++i) ends.emplace_back(std::in_place);
    nested.assign(calls.size(), false);
    for (const call& one : calls) {
      if (one.calls != none) nested[one.calls] = true;
    }
  }

  // ── moves ──

  static bool optional(const move& m) { return m.what == act::give_up; }
  std::vector<move> moves() const {
    std::vector<move> out;
    for (std::uint32_t c = 0; c < calls.size(); ++c) {
      switch (at[c]) {
      case stage::idle:
        if (!nested[c] && (calls[c].after == none || at[calls[c].after] > stage::looked)) {
          out.push_back({act::start, c});
        }
        break;
      case stage::looked:
        out.push_back({act::queue, c});
        break;
      case stage::waits_for_object:
        if (at[calls[c].object_of] == stage::over) out.push_back({act::make_object, c});
        break;
      case stage::runs:
        out.push_back({act::finish, c});
        break;
      case stage::under_way:
        if (calls[c].may_give_up && in_outbox(c)) out.push_back({act::give_up, c});
        break;
      default:
        break;
      }
    }
    for (rank a = 0; a < size; ++a) {
      for (rank b = 0; b < size; ++b) {
        const end& e = of(a, b);
        if (!e.line.empty() && !e.window.full()) out.push_back({act::look, a, b});
        if (!e.outbox.empty() && e.wire.size() < wire_room) out.push_back({act::write, a, b});
        if (!e.wire.empty()) out.push_back({act::read, a, b});
      }
    }
    return out;
  }
  std::string name(const move& m) const {
    static constexpr std::array<const char*, 8> words{
        "starts",          "there is room",   "is queued", "a frame is written",
        "a frame is read", "gets its object", "ends",      "is given up"};
    return std::to_string(m.a) + "," + std::to_string(m.b) + ": " +
           words[static_cast<std::size_t>(m.what)];
  }
  void make(const move& m) {
    switch (m.what) {
    case act::start:
      return start(m.a);
    case act::look: {
      end& e = change(m.a, m.b);
      at[e.line.front()] = stage::looked;
      e.line.erase(e.line.begin());
      return;
    }
    case act::queue: {
      const call& c = calls[m.a];
      end& e = change(c.from, c.to);
      if (e.window.sent(c.cost)) {
        e.outbox.push_back({frame::kind::request, m.a, 0});
        at[m.a] = stage::under_way;
      } else {  // another one was faster
        e.line.insert(e.line.begin(), m.a);
        at[m.a] = stage::in_line;
      }
      return ask(c.from, c.to);
    }
    case act::write:
      return write(m.a, m.b);
    case act::read:
      return read(m.a, m.b);
    case act::make_object:
      return begin_or_throttle(m.a);
    case act::finish:
      return finish(m.a);
    case act::give_up: {
      end& e = change(calls[m.a].from, calls[m.a].to);
      std::erase_if(e.outbox, [&](const frame& f) {
        return f.what == frame::kind::request && f.call == m.a;
      });
      hold(e.window.credited(calls[m.a].cost), "what is taken back was used");
      at[m.a] = stage::over;
      return ask(calls[m.a].from, calls[m.a].to);
    }
    }
  }

  // ── what is promised ──

  void audit() const {
    for (rank a = 0; a < size; ++a) {
      for (rank b = 0; b < size; ++b) audit(a, b);
    }
  }
  /// Requests from a to b.
  void audit(rank a, rank b) const {
    std::uint64_t under_way = 0, credit = 0, held = 0, unwritten = 0, most = 0;
    const end& caller = of(a, b);
    const end& callee = of(b, a);
    for (const auto* queue : {&caller.outbox, &caller.wire}) {
      for (const frame& f : *queue) {
        if (f.what == frame::kind::request) under_way += calls[f.call].cost;
      }
    }
    for (const auto* queue : {&callee.outbox, &callee.wire}) {
      for (const frame& f : *queue) credit += f.what == frame::kind::request ? 0 : f.credit;
    }
    for (const frame& f : callee.outbox) {
      if (f.what == frame::kind::reply) unwritten += calls[f.call].reply;
    }
    for (std::uint32_t c = 0; c < calls.size(); ++c) {
      if (calls[c].from != a || calls[c].to != b) continue;
      most = std::max(most, calls[c].cost);
      if (at[c] == stage::throttled || at[c] == stage::waits_for_object) held += calls[c].cost;
    }
    hold(caller.window.used() == under_way + callee.given.held() + callee.given.owed() + credit,
         "every byte of a window is somewhere:", a, b);
    hold(callee.given.held() == held, "what has not begun is held:", a, b);
    hold(callee.given.unwritten() == unwritten, "what is not written is known:", a, b);
    hold(held + callee.given.owed() < granted + std::max<std::uint64_t>(most, 1),
         "no more is held than the window and one request:", a, b);
  }
  void finish() const {
    for (std::uint32_t c = 0; c < calls.size(); ++c) {
      hold(at[c] == stage::over, "nobody waits for ever: call", c);
    }
    for (rank a = 0; a < size; ++a) {
      for (rank b = 0; b < size; ++b) {
        hold(of(a, b).window.used() == of(b, a).given.owed(), "what is in use is owed:", a, b);
        hold(of(b, a).given.owed() < granted / 4, "what is worth a frame is told:", a, b);
      }
    }
  }
  void encode(encoder& e) const {
    e.list(at);
    for (const auto& one : ends) {
      exploring::with_members(
          one->window, [&](std::uint64_t used, bool asked) { e << used << (asked ? 1 : 0); });
      exploring::with_members(
          one->given, [&](std::uint64_t held, std::uint64_t owed, std::uint64_t unwritten,
                          bool starved) { e << held << owed << unwritten << (starved ? 1 : 0); });
      e.list(one->line);
      e.list(one->throttled);
      for (const auto* queue : {&one->outbox, &one->wire}) {
        e.list(*queue, [&](const frame& f) {
          e << static_cast<std::uint64_t>(f.what) << f.call << f.credit;
        });
      }
    }
  }

 private:
  const end& of(rank from, rank to) const { return *ends[from * size + to]; }
  end& change(rank from, rank to) { return ends[from * size + to].change(); }
  [[nodiscard]] bool in_outbox(std::uint32_t c) const {
    const auto& queue = of(calls[c].from, calls[c].to).outbox;
    return std::any_of(queue.begin(), queue.end(), [&](const frame& f) {
      return f.what == frame::kind::request && f.call == c;
    });
  }

  void start(std::uint32_t c) {
    at[c] = stage::in_line;
    change(calls[c].from, calls[c].to).line.push_back(c);
    ask(calls[c].from, calls[c].to);
  }
  /// Who waits in vain says so.
  void ask(rank from, rank to) {
    end& e = change(from, to);
    if (!e.line.empty() && e.window.full() && e.window.ask()) {
      e.outbox.push_back({frame::kind::window, none, 0});
    }
  }
  void write(rank from, rank to) {
    end& e = change(from, to);
    const frame f = e.outbox.front();
    e.outbox.erase(e.outbox.begin());
    e.wire.push_back(f);
    if (f.what == frame::kind::reply) e.given.reply_written(calls[f.call].reply);
    // bounded: each turn lets one of them begin
    while (!change(from, to).throttled.empty() && of(from, to).given.may_begin()) {
      auto& throttled = change(from, to).throttled;
      const std::uint32_t next = throttled.front();
      throttled.erase(throttled.begin());
      begin(next);
    }
  }
  void read(rank from, rank to) {
    end& wires = change(from, to);
    const frame f = wires.wire.front();
    wires.wire.erase(wires.wire.begin());
    end& mine = change(to, from);
    if (f.what == frame::kind::request) {
      hold(mine.given.arrived(calls[f.call].cost), "no correct peer sends too much:", from);
      if (calls[f.call].object_of != none && at[calls[f.call].object_of] != stage::over) {
        at[f.call] = stage::waits_for_object;
      } else {
        begin_or_throttle(f.call);
      }
      return;
    }
    if (f.what == frame::kind::window && f.credit == 0) {
      mine.given.starved();
      return give_credit(to, from);
    }
    hold(mine.window.credited(f.credit), "no credit for more than was sent:", to);
    ask(to, from);
    if (f.what == frame::kind::reply) end_call(f.call);
  }
  void give_credit(rank from, rank to) {
    end& e = change(from, to);
    const std::uint64_t credit = e.given.take_due();
    if (credit != 0) e.outbox.push_back({frame::kind::window, none, credit});
  }
  void begin_or_throttle(std::uint32_t c) {
    end& e = change(calls[c].to, calls[c].from);
    if (e.throttled.empty() && e.given.may_begin()) return begin(c);
    e.throttled.push_back(c);
    at[c] = stage::throttled;
  }
  void begin(std::uint32_t c) {
    end& e = change(calls[c].to, calls[c].from);
    e.given.begun(calls[c].cost);
    if (e.given.due()) give_credit(calls[c].to, calls[c].from);
    at[c] = stage::runs;
    if (calls[c].calls == none) return;
    at[c] = stage::calls_another;
    start(calls[c].calls);
  }
  void finish(std::uint32_t c) {
    if (calls[c].reply == 0) return end_call(c);
    at[c] = stage::under_way;
    end& e = change(calls[c].to, calls[c].from);
    e.given.reply_queued(calls[c].reply);
    e.outbox.push_back({frame::kind::reply, c, e.given.take_all()});
  }
  void end_call(std::uint32_t c) {
    at[c] = stage::over;
    for (std::uint32_t outer = 0; outer < calls.size(); ++outer) {
      if (calls[outer].calls == c && at[outer] == stage::calls_another) at[outer] = stage::runs;
    }
  }

  std::vector<call> calls;
  std::vector<bool> nested;
  std::vector<stage> at;
  std::vector<exploring::shared<end>> ends;
};

TEST_CASE("windows, explored: who waits for room gets it") {
  // More than fits: each is larger than the window.
  exploring::explore("three large requests",
                     world({{.from = 0, .to = 1, .cost = 9000},
                            {.from = 0, .to = 1, .cost = 9000},
                            {.from = 0, .to = 1, .cost = 9000}}),
                     100'000);
  exploring::explore("some that nobody answers, from both sides",
                     world({{.from = 0, .to = 1, .cost = 7168, .reply = 0},
                            {.from = 0, .to = 1, .cost = 1024, .reply = 0},
                            {.from = 0, .to = 1, .cost = 1024, .reply = 0},
                            {.from = 1, .to = 0, .cost = 8192}}),
                     400'000);
}

TEST_CASE("windows, explored: who waits for an object does not keep out who makes it") {
  exploring::explore("the window is full of what waits, and of what is owed",
                     world({{.from = 0, .to = 1, .cost = 1024, .reply = 0},
                            {.from = 0, .to = 1, .cost = 7168, .object_of = 2},
                            {.from = 0, .to = 1, .cost = 1024, .reply = 0},
                            {.from = 2, .to = 1, .cost = 1024}}),
                     400'000);
  exploring::explore("it is so twice",
                     world({{.from = 0, .to = 1, .cost = 1024, .reply = 0},
                            {.from = 0, .to = 1, .cost = 7168, .object_of = 3},
                            {.from = 0, .to = 1, .cost = 1024, .reply = 0},
                            {.from = 0, .to = 1, .cost = 1024}}),
                     400'000);
  exploring::explore("who is asked has nothing to give yet",
                     world({{.from = 0, .to = 1, .cost = 1024},
                            {.from = 0, .to = 1, .cost = 1024, .after = 0},
                            {.from = 0, .to = 1, .reply = 0, .object_of = 5, .after = 1},
                            {.from = 0, .to = 1, .cost = 7168, .object_of = 4, .after = 2},
                            {.from = 0, .to = 1, .cost = 1024, .after = 3},
                            {.from = 2, .to = 1, .cost = 1024}}),
                     400'000);
}

TEST_CASE("windows, explored: replies that are not written hold up requests, not for ever") {
  exploring::explore("large replies in both directions",
                     world({{.from = 0, .to = 1, .reply = 9000},
                            {.from = 0, .to = 1, .reply = 9000},
                            {.from = 1, .to = 0, .cost = 9000, .reply = 9000},
                            {.from = 1, .to = 0, .reply = 100}}),
                     400'000);
}

TEST_CASE("windows, explored: functions that call on, round three workers") {
  exploring::explore("each calls the next, all windows full",
                     world({{.from = 0, .to = 1, .cost = 8192, .calls = 1},
                            {.from = 1, .to = 2, .cost = 8192, .calls = 2},
                            {.from = 2, .to = 0, .cost = 8192},
                            {.from = 1, .to = 2, .cost = 8192}}),
                     400'000);
}

TEST_CASE("windows, explored: what is given up gives its window back") {
  exploring::explore("two that may be given up",
                     world({{.from = 0, .to = 1, .cost = 8192, .may_give_up = true},
                            {.from = 0, .to = 1, .cost = 8192, .may_give_up = true},
                            {.from = 0, .to = 1, .cost = 1024}}),
                     400'000);
}

TEST_CASE("windows, explored: more of everything" * doctest::skip(!exploring::widely())) {
  exploring::explore("round three workers, both ways",
                     world({{.from = 0, .to = 1, .cost = 8192, .reply = 9000, .calls = 1},
                            {.from = 1, .to = 2, .cost = 8192, .reply = 9000, .calls = 2},
                            {.from = 2, .to = 0, .cost = 8192, .reply = 9000},
                            {.from = 1, .to = 2, .cost = 8192},
                            {.from = 2, .to = 1, .cost = 8192, .reply = 9000, .calls = 5},
                            {.from = 1, .to = 0, .cost = 8192}}),
                     400'000);
}

}  // namespace window_schedules
