// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/rref_service.hpp>

#include <chrono>
#include <sim/habits.hpp>
#include <sim/play.hpp>
#include <sim/references.hpp>

namespace weft::testing {

using namespace std::chrono_literals;

const char* name_of(profile p) noexcept { return p == profile::calm ? "calm" : "brutal"; }
const char* name_of(program p) noexcept {
  switch (p) {
  case program::calls:
    return "calls";
  case program::references:
    return "references";
  case program::habits:
    break;
  }
  return "habits";
}

/// Whether all that its program does is too much for a link's budget.
static bool is_crowded(const to_play& p) { return p.what == program::habits && p.seed % 8 == 7; }

sim::settings world_of(const to_play& p) {
  sim::splitmix draw(p.seed * 2 + 1);
  const auto one_of = [&draw](std::uint32_t n) {
    return static_cast<std::uint32_t>((draw() >> 32) * n >> 32);
  };
  sim::settings s;
  s.workers = p.workers;
  options& o = s.worker;
  o.io_threads = one_of(3);
  o.call_deadline = one_of(2) == 0 ? 2s : 20s;
  o.handshake_deadline = 500ms;
  o.rendezvous_deadline = 3s;
  o.shutdown_deadline = 3s;
  o.lost_after = 1s;
  o.stall_limit = 2s;
  o.waiting = 0s;
  o.window_bytes = one_of(2) == 0 ? 256u << 20 : 4096;
  if (one_of(2) == 0) o.on_loss = loss_policy::go_on();
  s.whole_frames = one_of(2) == 0;
  s.wires.delay = std::chrono::microseconds(1 + one_of(200));
  s.wires.jitter = one_of(2) == 0 ? 0us : std::chrono::microseconds(one_of(5000));
  s.clock_ppm = one_of(2) == 0 ? 0 : 10'000;
  s.slow_handlers_per_1024 = one_of(3) == 0 ? 20 : 0;
  s.keeps_story = p.story;
  s.wires.buffer_bytes = one_of(2) == 0 ? 64u << 20 : 1u << (8 + one_of(8));
  if (p.what == program::habits && p.seed % 8 == 6) {
    s.wires.jitter = 120ms;  // some handshakes are too late
    s.wires.buffer_bytes = 64u << 20;
    o.call_deadline = 20s;
  }
  if (is_crowded(p)) o.bounds.link_tensor_bytes = 40'000;
  if (p.how == profile::calm) return s;
  s.mean_between_faults = std::chrono::milliseconds(5 + one_of(200));
  s.faults_end = 2s;
  s.wires.refused_percent = one_of(3) == 0 ? 20 : 0;
  s.resets = one_of(2) == 0;
  s.cuts = one_of(2) == 0;
  s.pauses = one_of(2) == 0;
  s.crashes = one_of(2) == 0;
  s.longest_cut = one_of(2) == 0 ? 100ms : 3s;
  s.longest_pause = one_of(2) == 0 ? 100ms : 10s;
  s.lacks_memory_per_1024 = one_of(3) == 0 ? 1 + one_of(16) : 0;
  return s;
}

played play(const to_play& p) {
  const sim::settings how = world_of(p);
  const auto services = engine::services<rref_service>();
  auto w = p.record ? std::make_unique<sim::world>(p.seed, how, *p.record, services)
                    : std::make_unique<sim::world>(p.seed, how, services);
  witness sees(*w);
  object_witness objects(sees);
  sees.is_quiet_at_the_end = p.seed % 4 < 2;
  sees.longest_way = how.wires.delay + how.wires.jitter + 10ms;
  sees.wires_have_room = how.wires.buffer_bytes >= 1u << 20;
  w->start([&p](worker& me) {
    switch (p.what) {
    case program::calls:
      return some_program(me, 10);
    case program::references:
      return some_references(me, 12);
    case program::habits:
      break;
    }
    return some_habits(me, 12, is_crowded(p));
  });
  if (w->run(300s)) {
    sees.check();
  } else {
    sees.complain("after 300 s " + w->waits());
  }
  played out;
  out.hash = w->hash();
  out.steps = w->steps();
  out.calls = sees.calls.size();
  out.virtual_seconds = std::chrono::duration<double>(w->now() - sim::timeline::beginning).count();
  out.record = w->decide().made();
  out.story = w->story();
  w.reset();
  objects.stored.clear();
  for (std::size_t i = 0; i < objects.objects.size(); ++i) {
    const seen_object& o = objects.objects[i];
    if (o.made != o.dead) sees.complain("object " + std::to_string(i) + " never died");
  }
  out.broken = sees.broken;
  return out;
}

}  // namespace weft::testing
