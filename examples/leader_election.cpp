// SPDX-License-Identifier: BSL-1.0
// Five workers elect a leader as Raft does (Ongaro, Ousterhout: In search of an understandable
// consensus algorithm, 2014, section 5.2), in simulated worlds: messages take their time, ways are
// cut, workers are paused and crash. With --bug they make a mistake, which a world finds.
//
//   build/dev/examples/leader_election          # 1000 worlds, and nothing is wrong
//   build/dev/examples/leader_election --bug    # the seed that finds it, and how it comes to it
#include <weft/sim.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

using namespace std::chrono_literals;

// ── the program ──

/// What one worker knows.
struct node {
  std::uint64_t term = 0;
  enum : std::uint8_t { follower, candidate, leader } role = follower;
  std::optional<std::uint32_t> voted_for{};  // in this term
  std::uint32_t votes = 0;                   // that this candidate has
  std::uint64_t signs = 0;                   // of a leader, or of a candidate that got its vote

  void hears_of(std::uint64_t other_term) {
    if (other_term > term) *this = {.term = other_term, .signs = signs};
  }
};

/// The workers of a world share this process and its globals: so what belongs to a worker is found
/// by its rank. What happens in the world is judged here, too.
struct election {
  weft::sim::world& world;
  bool bug;
  std::vector<node> nodes = std::vector<node>(world.size());
  std::map<std::uint64_t, std::uint32_t> leaders{};  // of each term
  std::string broken{};

  void leads(std::uint32_t rank, std::uint64_t term) {
    world.tell(rank, "leads in term", term);
    const std::uint32_t first = leaders.emplace(term, rank).first->second;
    if (first != rank) broken = "term " + std::to_string(term) + " has two leaders";
  }
  /// Who leads most of the workers.
  [[nodiscard]] std::optional<std::uint32_t> leader() const {
    for (std::uint32_t r = 0; r < world.size(); ++r) {
      if (!world.at(r).alive() || nodes[r].role != node::leader) continue;
      std::uint32_t with_it = 0;
      for (std::uint32_t f = 0; f < world.size(); ++f) {
        with_it += world.at(f).alive() && nodes[f].term == nodes[r].term ? 1 : 0;
      }
      if (with_it > world.size() / 2) return r;
    }
    return std::nullopt;
  }
};
election* running = nullptr;
node& of(const weft::worker& me) { return running->nodes[me.rank()]; }

// [sleep]
/// By the worker's own clock, which a world moves on; an Asio timer would wait for the machine's.
asio::awaitable<void> sleep_for(weft::worker& me, weft::duration d) {
  const auto over = weft::make_intrusive<weft::event>();
  const auto t = me.time().make_timer(
      static_cast<asio::io_context&>(asio::query(me.get_executor(), asio::execution::context)));
  t->arm(me.time().now() + d, [over] { over->set(); });
  co_await weft::event::wait(over);
}
// [end]

// What others call. Coroutines, as these run on the worker's one thread, beside its main.
struct answer {
  std::uint64_t term;
  bool granted;
};
asio::awaitable<answer> vote(weft::worker& me, std::uint64_t term, std::uint32_t candidate) {
  node& self = of(me);
  self.hears_of(term);
  const bool granted = term == self.term && self.voted_for.value_or(candidate) == candidate;
  if (granted) {
    self.voted_for = candidate;
    ++self.signs;
    if (running->broken.empty()) {  // else it is over
      running->world.tell(me.rank(), "votes for worker" + std::to_string(candidate) + " in term",
                          term);
    }
  }
  co_return answer{self.term, granted};
}
asio::awaitable<std::uint64_t> follow(weft::worker& me, std::uint64_t term) {
  node& self = of(me);
  self.hears_of(term);
  if (term == self.term) {
    self.role = node::follower;
    ++self.signs;
  }
  co_return self.term;
}

asio::awaitable<void> remind(weft::worker& me, std::uint32_t rank, std::uint64_t term) {
  const weft::expected<std::uint64_t> its =
      co_await me.peer(rank).call<&follow>(term, weft::within(200ms), weft::as_expected);
  if (its) of(me).hears_of(*its);
}
asio::awaitable<void> lead(weft::worker& me, std::uint64_t term) {
  running->leads(me.rank(), term);
  while (of(me).role == node::leader && of(me).term == term) {
    for (std::uint32_t r = 0; r < me.world_size(); ++r) {
      if (r != me.rank()) me.spawn(remind(me, r, term)).detach();
    }
    co_await sleep_for(me, 50ms);
  }
}

asio::awaitable<void> ask(weft::worker& me, std::uint32_t rank, std::uint64_t term) {
  const weft::expected<answer> its =
      co_await me.peer(rank).call<&vote>(term, me.rank(), weft::within(2s), weft::as_expected);
  if (!its) co_return;
  node& self = of(me);
  self.hears_of(its->term);
  if (!its->granted || self.role != node::candidate) co_return;
  // The bug: a vote that comes late is counted in a later term, for which nobody gave it.
  if (self.term != term && !running->bug) co_return;
  if (++self.votes <= me.world_size() / 2) co_return;
  self.role = node::leader;
  me.spawn(lead(me, self.term)).detach();
}
void stand(weft::worker& me) {
  node& self = of(me);
  self = {.term = self.term + 1, .role = node::candidate, .voted_for = me.rank(), .votes = 1};
  running->world.tell(me.rank(), "stands in term", self.term);
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    if (r != me.rank()) me.spawn(ask(me, r, self.term)).detach();
  }
}

asio::awaitable<void> main_(weft::worker& me) {
  for (;;) {  // until its world ends
    const std::uint64_t signs = of(me).signs;
    co_await sleep_for(me, 150ms + me.random()() % 150 * 1ms);
    if (of(me).role != node::leader && of(me).signs == signs) stand(me);
  }
}

// ── its worlds ──

weft::sim::settings settings(bool story) {
  weft::sim::settings s;
  s.workers = 5;
  s.worker.on_loss = weft::loss_policy::go_on();
  s.wires.jitter = 20ms;
  s.mean_between_faults = 100ms;
  s.faults_end = 3s;
  s.cuts = s.pauses = true;
  s.longest_cut = s.longest_pause = 1s;
  s.keeps_story = story;
  s.tells_arrivals = false;
  return s;
}

/// Plays an election in a world, and says what it broke.
std::string play(weft::sim::world& w, bool bug) {
  election e{w, bug};
  running = &e;
  const auto broken = [&e] { return !e.broken.empty(); };
  w.start(main_);
  for (int i = 0; i < 2 && !w.run(1s, broken); ++i) {  // the majority lives
    const auto leader = e.leader();
    if (leader.value_or(0) != 0) w.crash(*leader, w.decide().chance(50));  // no run outlives rank 0
  }
  w.run(3s, broken);  // the last cuts heal
  w.run(10s, [&] { return broken() || e.leader(); });
  if (!broken() && !e.leader()) e.broken = "nobody leads, though nothing has gone wrong for long";
  running = nullptr;
  return e.broken;
}

// [seed]
/// Whether that seed's world is right; if not, it tells the smallest one that is not.
bool right(std::uint64_t seed, bool bug) {
  weft::sim::world w(seed, settings(false));  // with references or gradients also sim::services()
  if (play(w, bug).empty()) return true;
  const auto small = weft::sim::shrink(w.decide().made(), [&](const weft::sim::record& r) {
    weft::sim::world again(seed, settings(false), r);
    return !play(again, bug).empty();
  });
  weft::sim::world least(seed, settings(true), small);
  std::cout << "seed " << seed << ": " << play(least, bug) << '\n' << least.story();
  return false;
}
// [end]

int main(int argc, char** argv) {
  CLI::App app("Elections of a leader in simulated worlds, one for each seed.");
  std::uint64_t seeds = 1000;
  bool bug = false;
  app.add_option("--seeds", seeds, "number of seeds")->capture_default_str();
  app.add_flag("--bug", bug, "make a mistake on purpose: count late votes in a later term");
  CLI11_PARSE(app, argc, argv);
  std::cerr.setstate(std::ios::badbit);  // what workers say of those that they lose
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    if (!right(seed, bug)) return 1;
  }
  std::cout << seeds << " seeds, one leader in each term, and one at the end\n";
}
