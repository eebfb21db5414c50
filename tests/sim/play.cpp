// SPDX-License-Identifier: BSL-1.0
#include <chrono>
#include <sim/play.hpp>

namespace weft::testing {

using namespace std::chrono_literals;

const char* name_of(profile p) noexcept { return p == profile::calm ? "calm" : "brutal"; }
const char* name_of(const program& p) noexcept { return p.name; }

sim::settings world_of(const to_play& p) {
  sim::splitmix draw(p.seed * 2 + 1);
  const auto one_of = [&draw](std::uint32_t n) {
    return static_cast<std::uint32_t>((draw() >> 32) * n >> 32);
  };
  sim::settings s;
  s.workers = p.workers;
  options& o = s.worker;
  // By default, or with so many.
  if (const std::uint32_t threads = one_of(6); threads >= 3) o.io_threads = threads - 3;
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
  s.writes_at_once = one_of(4) != 0;
  if (p.seed % 2 == 0) o.bulk_bytes = 1;
  if (p.what.adjust) p.what.adjust(p.seed, s);
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
  s.lacks_memory_per_1024 = one_of(3) == 0 ? 16u << one_of(5) : 0;
  if (one_of(5) == 0) {  // what is asked of a loss is asked where nothing else goes wrong
    s.resets = s.cuts = s.pauses = false;
    s.crashes = true;
    s.lacks_memory_per_1024 = 0;
  }
  return s;
}

played play(const to_play& p) {
  const sim::settings how = world_of(p);
  const auto services = p.what.services();
  auto w = p.record ? std::make_unique<sim::world>(p.seed, how, *p.record, services)
                    : std::make_unique<sim::world>(p.seed, how, services);
  witness sees(*w);
  const std::unique_ptr<script> what = p.what.begin(sees);
  sees.is_quiet_at_the_end = p.seed % 4 < 2;
  // A slow handler at either end takes up to 10 ms.
  sees.longest_way =
      how.wires.delay + how.wires.jitter + (how.slow_handlers_per_1024 > 0 ? 50ms : 10ms);
  sees.faults_over = how.faults_end + std::max(how.longest_cut, how.longest_pause);
  sees.may_miss_each_other = how.wires.refused_percent > 0;
  sees.lacks_memory = how.lacks_memory_per_1024 > 0;
  sees.wires_have_room = how.wires.buffer_bytes >= 1u << 20;
  w->start([&what](worker& me) { return what->main(me); });
  if (w->run(300s)) {
    sees.check();
  } else {
    sees.complain("after 300 s " + w->waits());
  }
  played out;
  out.hash = w->hash();
  out.steps = w->steps();
  out.faulty = w->faulty();
  out.virtual_seconds = std::chrono::duration<double>(w->now() - sim::timeline::beginning).count();
  out.record = w->decide().made();
  out.story = w->story();
  what->let_go();
  w.reset();
  what->check();
  out.counted = what->count();
  out.broken = sees.broken;
  return out;
}

}  // namespace weft::testing
