// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/sim/world.hpp.
#pragma once

#include <weft/sim/transports.hpp>
#include <weft/sim/world.hpp>

#include <algorithm>
#include <cstdio>

namespace weft::sim {

inline world::world(std::uint64_t seed, settings how, engine::service_makers services)
    : world(choices(seed), seed, std::move(how), std::move(services)) {}

inline world::world(std::uint64_t seed, settings how, record made, engine::service_makers services)
    : world(choices(std::move(made)), seed, std::move(how), std::move(services)) {}

inline world::world(choices by, std::uint64_t seed, settings how, engine::service_makers services)
    : how_(std::move(how)),
      services_(std::move(services)),
      choices_(std::move(by)),
      random_(splitmix(~seed)),
      net_(time_, choices_, how_.workers, how_.wires),
      fates_(how_.workers) {}

inline world::~world() {
  for (host_id r = 0; r < hosts_.size(); ++r) kill(r);
}
inline void world::kill(std::uint32_t rank) {
  const std::uint32_t before = std::exchange(runs_now_, rank);
  if (hosts_[rank]->alive()) --alive_;
  hosts_[rank]->kill();
  runs_now_ = before;
}

inline std::uint32_t world::known(std::uint32_t rank) const {
  if (rank < hosts_.size()) return rank;
  throw rpc_error(errc::unknown_peer,
                  "there is no rank " + std::to_string(rank) + "; the world " +
                      (hosts_.empty() ? "has not been started"
                                      : "has " + std::to_string(hosts_.size()) + " workers"));
}
inline worker& world::worker_at(std::uint32_t rank) const {
  host& h = at(rank);
  if (h.alive()) return h.worker();
  throw rpc_error(errc::peer_died,
                  "worker " + std::to_string(rank) + " of the world has ended or crashed");
}

inline void world::start(const main_function& main_of_all) {
  if (how_.workers == 0) throw rpc_error(errc::invalid_argument, "a world needs a worker");
  if (!hosts_.empty()) throw rpc_error(errc::invalid_argument, "the world was started before");
  thread_ = &here_;
  net_.tells = [this](host_id from, host_id to, const char* what, std::uint64_t units) {
    note(from * 7919u + to);
    note(units + static_cast<std::uint64_t>(*what) * 65537);
    if (!how_.keeps_story || !how_.tells_arrivals) return;
    write(to, "from worker" + std::to_string(from) + " " + what, units);
  };
  main_ = main_of_all;
  all_.token = random_id(random_);
  for (host_id r = 0; r < how_.workers; ++r) {
    hosts_.push_back(make_host(r));
    for (std::uint32_t i = 0; i < hosts_[r]->threads(); ++i) threads_.emplace_back(r, i);
    all_.members.push_back(make_member(r));
  }
  runs_now_ = how_.workers;
  for (host_id r = 0; r < how_.workers; ++r) begin(r);
  if (how_.mean_between_faults > duration::zero()) next_fault();
}

inline std::unique_ptr<host> world::make_host(host_id r) {
  // Fast or slow; the first choice is neither.
  std::int32_t ppm = 0;
  if (how_.clock_ppm != 0) {
    const std::uint32_t drawn = choices_.pick(2 * static_cast<std::uint32_t>(how_.clock_ppm) + 1);
    const auto size = static_cast<std::int32_t>((drawn + 1) / 2);
    ppm = drawn % 2 == 0 ? size : -size;
  }
  return std::make_unique<host>(time_, r, how_.worker, ppm);
}

inline member world::make_member(host_id r) {
  member m;
  m.name = how_.worker.name(r, how_.workers, "worker" + std::to_string(r));
  m.role = how_.worker.role(r, how_.workers, "");
  m.incarnation = random_id(random_);
  m.addresses = hosts_[r]->listen(transports_at(r));
  m.window = how_.worker.window_bytes;
  return m;
}

inline void world::begin(host_id r) {
  membership mine = all_;
  mine.rank = r;
  const std::uint64_t seed = random_();
  const auto watched = [this](weft::worker& me) -> asio::awaitable<void> {
    struct inside {
      explicit inside(bool& flag) : in(flag) { in = true; }
      ~inside() { in = false; }
      bool& in;
    } now(fates_[me.rank()].in_main);
    co_await main_(me);
  };
  hosts_[r]->start(std::move(mine), splitmix(seed), services_, watched);
  ++alive_;
}

inline engine::transport_set world::transports_at(host_id r) {
  if (how_.whole_frames) return engine::transports_of(frames(net_, r));
  if (how_.writes_at_once) return engine::transports_of(bytes(net_, r));
  return engine::transports_of(late_bytes(net_, r));
}

inline bool world::over() const { return !hosts_.empty() && alive_ == 0; }

/// One handler of one thread of one host, whose turn the choices decide.
inline bool world::run_handlers() {
  const auto threads = static_cast<std::uint32_t>(threads_.size());
  // What was drawn in vain holds while no time passes.
  const std::uint32_t first = first_ ? *first_ : choices_.pick(threads);
  first_.reset();
  for (std::uint32_t n = 0; n < threads; ++n) {
    const auto [r, i] = threads_[(first + n) % threads];
    host& h = *hosts_[r];
    if (!h.alive() || fates_[r].paused_until > time_.now() || h.busy_until(i) > time_.now()) {
      continue;
    }
    runs_now_ = r;
    draw_shortage();
    weft::detail::decides_memory = &shortage_;
    const bool ran = h.step(i);
    weft::detail::decides_memory = nullptr;
    if (std::exchange(shortage_.struck, false)) {
      faulty_ = true;
      tell(r, "it lacked memory");
    }
    runs_now_ = how_.workers;
    if (!ran) continue;
    ++steps_;
    note(r * 16 + i);
    const bool slow = how_.slow_handlers_per_1024 > 0 &&
                      choices_.pick(1024) >= 1024 - how_.slow_handlers_per_1024;
    if (slow) {  // its other threads go on meanwhile
      const duration lasts = how_.handler_time * (choices_.pick(4) == 3 ? 10'000 : 100);
      h.busy(i, time_.now() + lasts);
      after(lasts, [] {});
    }
    time_.pass(how_.handler_time);
    if (!fates_[r].crashed && h.ended()) {
      tell(r, *h.ended() ? "its run has failed: " + h.ended()->message() : "its run has ended");
      kill(r);
    }
    bury();
    return true;
  }
  first_ = first;
  return false;
}
/// Those who crashed in a handler, of whomever.
inline void world::bury() {
  if (!std::exchange(some_crashed_, false)) return;
  for (host_id r = 0; r < hosts_.size(); ++r) {
    if (fates_[r].crashed && hosts_[r]->alive()) kill(r);
  }
}

/// Of the handler that runs next.
inline void world::draw_shortage() {
  shortage_.before = shortage_.more = 0;
  if (how_.lacks_memory_per_1024 == 0 || time_.now() - timeline::beginning > how_.faults_end ||
      choices_.pick(1024) < 1024 - how_.lacks_memory_per_1024) {
    return;
  }
  shortage_.before = 1 + choices_.pick(4);
  if (choices_.pick(4) == 3) shortage_.more = 1 + choices_.pick(8);
}

inline bool world::step() { return step_by(time_point::max()); }

inline bool world::step_by(time_point latest) {
  if (hosts_.empty()) return false;
  if (thread_ != &here_) {
    throw rpc_error(errc::invalid_argument, "a world runs on the thread that started it");
  }
  bury();
  if (over()) return false;
  while (!time_.empty() && time_.next() <= time_.now()) time_.step();
  if (run_handlers()) return true;
  if (time_.empty()) return false;
  if (time_.next() > latest) {
    time_.pass(latest - time_.now());
    return true;
  }
  first_.reset();
  time_.step();
  note(static_cast<std::uint64_t>(time_.now().time_since_epoch().count()));
  return true;
}

inline bool world::run(duration most, const std::function<bool()>& done) {
  const time_point until = later(time_.now(), most);
  while (time_.now() < until) {
    if (done && done()) return true;
    if (!step_by(until)) break;
  }
  return over() || (done && done());
}

inline void world::crash(std::uint32_t rank, bool in_silence) {
  if (!at(rank).alive() || fates_[rank].crashed) return;
  tell(rank, in_silence ? "its machine is gone" : "it crashes");
  fates_[rank].crashed = true;
  fates_[rank].crashed_at = time_.now();
  faulty_ = true;
  net_.lose(rank, in_silence);
  if (runs_now_ != how_.workers) {
    some_crashed_ = true;  // it goes behind the handler that runs
  } else {
    kill(rank);
  }
}

inline void world::restart(std::uint32_t rank) {
  if (at(rank).alive() || !fates_[rank].crashed) {
    throw rpc_error(errc::invalid_argument,
                    "worker " + std::to_string(rank) + " of the world has not crashed");
  }
  hosts_[rank] = make_host(rank);
  member anew = make_member(rank);
  fates_[rank] = {};
  tell(rank, "a new process starts in its place");
  std::swap(all_.members.change(rank), anew);
  begin(rank);
  std::swap(all_.members.change(rank), anew);
}

inline void world::pause(std::uint32_t rank, duration how_long) {
  if (!at(rank).alive()) return;
  faulty_ = was_cut_ = true;
  fate& f = fates_[rank];
  const time_point until = std::max(f.paused_until, time_.now() + how_long);
  f.paused += until - std::max(f.paused_until, time_.now());
  f.paused_until = until;
  tell(rank, "it is paused, for ms",
       static_cast<std::uint64_t>(how_long / std::chrono::milliseconds(1)));
  after(until - time_.now(), [] {});
}

inline duration world::paused(std::uint32_t rank) const { return fates_[known(rank)].paused; }

inline void world::after(duration d, std::function<void()> what) {
  std::erase_if(events_, [](const auto& e) { return !e->awaited(); });
  events_.push_back(std::make_unique<event>(time_, std::move(what)));
  time_.add(*events_.back(), time_.now() + d);
}

/// 1 to 1024 times `of` through `divisor`, and never nothing.
inline duration world::draw_part(duration of, std::int64_t divisor) {
  return std::max(duration(1), part_of(of, 1 + std::int64_t{choices_.pick(1024)}, divisor));
}

inline void world::next_fault() {
  const duration in = draw_part(how_.mean_between_faults, 512);
  if (time_.now() + in - timeline::beginning > how_.faults_end) return;
  after(in, [this] {
    fault();
    next_fault();
  });
}

inline void world::fault() {
  std::array<int, 4> kinds{};
  std::size_t n = 0;
  if (how_.resets) kinds[n++] = 0;
  if (how_.cuts) kinds[n++] = 1;
  if (how_.pauses) kinds[n++] = 2;
  if (how_.crashes) kinds[n++] = 3;
  if (n == 0) return;
  const std::uint32_t what = choices_.pick(static_cast<std::uint32_t>(2 * n));
  if (what == 0) return;
  faulty_ = true;
  const host_id a = choices_.pick(how_.workers);
  const host_id b = how_.workers > 1 ? (a + 1 + choices_.pick(how_.workers - 1)) % how_.workers : a;
  switch (kinds[what % n]) {
  case 0: {
    const bool late = choices_.pick(4) == 3;  // the other one
    const duration d = late ? draw_part(how_.longest_cut, 1024) : duration::zero();
    if (!net_.reset(a, b, d)) return;
    was_cut_ = true;
    tell(a,
         late ? "its connection breaks, not yet noticed by worker"
              : "its connection breaks, to worker",
         b);
    return;
  }
  case 1: {
    was_cut_ = true;
    const bool both = choices_.pick(2) == 0;
    const duration d = draw_part(how_.longest_cut, 1024);
    tell(a, both ? "it is cut off, from worker" : "nothing that it sends reaches worker", b);
    net_.cut(a, b);
    if (both) net_.cut(b, a);
    after(d, [this, a, b, both] {
      tell(a, "the way is open again, to worker", b);
      net_.heal(a, b);
      if (both) net_.heal(b, a);
    });
    return;
  }
  case 2: {
    const duration d = draw_part(how_.longest_pause, 1024);
    pause(a, d);
    return;
  }
  default:
    crash(a, choices_.pick(2) == 1);
  }
}

inline void world::tell(std::uint32_t rank, std::string_view what,
                        std::optional<std::uint64_t> number) {
  note(rank);
  note(number.value_or(0));
  for (const char c : what) note(static_cast<unsigned char>(c));
  if (how_.keeps_story) write(rank, what, number);
}

inline void world::write(std::uint32_t rank, std::string_view what,
                         std::optional<std::uint64_t> number) {
  char at[48];
  const double seconds = std::chrono::duration<double>(time_.now() - timeline::beginning).count();
  std::snprintf(at, sizeof at, "%12.6f worker%u ", seconds, rank);
  story_ += at;
  story_ += what;
  if (number) story_ += " " + std::to_string(*number);
  story_ += '\n';
}

inline std::string world::waits() const {
  std::string who;
  for (const bool in_main : {true, false}) {  // those who serve until the others have ended last
    for (host_id r = 0; r < hosts_.size(); ++r) {
      if (!hosts_[r]->alive() || fates_[r].in_main != in_main) continue;
      who += (who.empty() ? "" : ", ") + hosts_[r]->worker().name() +
             (in_main ? ", whose main has not returned" : ", whose main has returned");
      for (engine::link& from : hosts_[r]->worker().links()) {
        for (const std::string& name : from.serves()) {
          who += ", and which serves " + name + " for " + from.name();
        }
      }
    }
  }
  if (who.empty()) return who;
  return "these have not ended: " + who + "; " +
         (time_.empty() ? "nothing is left to happen in virtual time, so they wait"
                        : "if they had enough time, they wait") +
         " for a thread, a timer or a descriptor of the machine, or for something that never "
         "happens";
}

}  // namespace weft::sim
