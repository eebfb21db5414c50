// SPDX-License-Identifier: BSL-1.0
// Every schedule of one backward pass of three workers over small graphs: messages pass each other
// and come again, nodes fail, a worker is lost.
#include "core/explore.hpp"
#include <weft/autograd/ended_passes.hpp>
#include <weft/autograd/messages.hpp>
#include <weft/autograd/wave.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <autograd/wave_graph.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

using weft::autograd::wave;
using needs_seen = weft::detail::sequence_set<std::uint32_t>;

template struct exploring::revealed<needs_seen, &needs_seen::next_, &needs_seen::beyond_>;
template struct exploring::revealed<
    wave, &wave::phase_, &wave::settings_, &wave::opens_, &wave::visited_, &wave::open_,
    &wave::dependencies_, &wave::needed_nodes_, &wave::needed_, &wave::premature_, &wave::early_,
    &wave::asked_, &wave::asked_by_, &wave::deficit_, &wave::parent_, &wave::below_,
    &wave::waiting_, &wave::leads_to_, &wave::discovered_, &wave::lost_, &wave::participants_,
    &wave::done_>;

namespace waves {

using namespace weft::autograd;
using namespace weft::autograd::wave_input;
using namespace weft::autograd::wave_output;
using exploring::encoder;
using exploring::hold;
using part = weft::testing::test_graph;

constexpr worker_rank world_size = 3;
constexpr context_id the_context = 7;

/// A forward history, and what a pass over it needs.
struct history {
  using place = std::pair<worker_rank, node_index>;

  node_index op(worker_rank at, std::vector<node_index> inputs) {
    return parts[at].add(std::move(inputs));
  }
  /// Sends what `node` of `from` produced to `to`; returns the receive node there.
  node_index transfer(worker_rank from, node_index node, worker_rank to) {
    const message_id id = ++last;
    const node_index s = parts[from].add({node});
    parts[from].sends[id] = {s, to};
    const node_index r = parts[to].add({});
    parts[to].nodes[r].receive = peer_message{from, id, the_context};
    return r;
  }
  /// A pass from `roots` of `initiator`.
  void pass_from(worker_rank initiator, std::vector<node_index> from) {
    first = initiator;
    roots = std::move(from);
    std::vector<place> stack;
    for (const node_index r : roots) stack.emplace_back(initiator, r);
    while (!stack.empty()) {
      const place p = stack.back();
      stack.pop_back();
      if (!needed.insert(p).second) continue;
      for (const place next : successors(p)) {
        stack.push_back(next);
        before[next].insert(p);
      }
    }
  }
  std::vector<place> successors(place p) const {
    const auto& n = parts[p.first].nodes[p.second];
    std::vector<place> out;
    for (const node_index e : n.edges) out.emplace_back(p.first, e);
    if (n.receive) {
      const worker_rank peer = n.receive->peer;
      out.emplace_back(peer, parts[peer].sends.at(n.receive->message).node);
    }
    return out;
  }
  bool linked(worker_rank a, worker_rank b) const {
    const auto sent = [&](worker_rank from, worker_rank to) {
      return std::any_of(parts[from].sends.begin(), parts[from].sends.end(),
                         [&](const auto& s) { return s.second.peer == to; });
    };
    return sent(a, b) || sent(b, a);
  }

  std::array<part, world_size> parts;
  message_id last = 0;
  worker_rank first = 0;
  std::vector<node_index> roots;
  std::set<place> needed;
  std::map<place, std::set<place>> before;
};

struct plan {
  unsigned repeats = 0;   // a message arrives again
  unsigned fails = 0;     // a node fails, or the caller gives up
  unsigned kills = 0;     // a worker is lost
  unsigned cuts = 0;      // a link is lost
  bool in_order = false;  // on each link; else anything may pass anything
  mode how = mode::smart;
};

struct world {
  enum class act : std::uint8_t { deliver, run, notice, repeat, fail, kill, cut };
  struct move {
    act what;
    worker_rank a = 0;
    worker_rank b = 0;  // or a node
    std::uint32_t which = 0;
  };
  struct worker {
    std::optional<wave> plan;
    ended_passes ended;
    bool alive = true;
    std::vector<int> left;  // dependencies to come; of nodes that may grow: minus those that came
    std::set<node_index> grow;
    std::size_t to_run = 0;
    std::size_t ran = 0;
    bool all_known = false;
    std::set<node_index> ready;
    std::set<worker_rank> told;  // to be lost
    int commits = 0;
    int aborts = 0;
  };

  world(const history& h, const plan& p) : graph(&h), rules(p), pass{the_context, h.first, 1} {
    for (worker_rank w = 0; w < world_size; ++w) at.emplace_back(std::in_place);
    for (unsigned i = 0; i < world_size * world_size; ++i) wires.emplace_back(std::in_place);
    at[h.first].change().plan.emplace(pass, h.first, world_size, pass_settings(), p.how);
    feed(h.first, begin{h.roots});
  }

  // ── moves ──

  static bool optional(const move& m) { return m.what >= act::repeat; }
  std::vector<move> moves() const {
    std::vector<move> out;
    for (worker_rank a = 0; a < world_size; ++a) {
      for (worker_rank b = 0; b < world_size; ++b) {
        if (!at[b]->alive) continue;
        const std::size_t waiting = wire(a, b).size();
        const std::size_t open = rules.in_order ? std::min<std::size_t>(1, waiting) : waiting;
        for (std::uint32_t i = 0; i < open; ++i) {
          out.push_back({act::deliver, a, b, i});
          if (rules.repeats > 0) out.push_back({act::repeat, a, b, i});
        }
      }
      if (!at[a]->alive) continue;
      for (const node_index n : at[a]->ready) out.push_back({act::run, a, n, 0});
      if (rules.fails > 0 && at[a]->plan) out.push_back({act::fail, a, 0, 0});
      if (rules.kills > 0) out.push_back({act::kill, a, 0, 0});
      for (worker_rank b = a + 1; rules.cuts > 0 && b < world_size; ++b) {
        if (at[b]->alive && !severed(a, b)) out.push_back({act::cut, a, b, 0});
      }
    }
    for (const auto& [who, gone] : notices) {
      if (at[who]->alive) out.push_back({act::notice, who, gone, 0});
    }
    return out;
  }
  std::string name(const move& m) const {
    static constexpr std::array<const char*, 7> words{
        "arrives", "runs",    "hears of the loss", "arrives, and stays",
        "fails",   "is lost", "link is lost"};
    std::string out = std::to_string(m.a) + "," + std::to_string(m.b) + ": " +
                      words[static_cast<std::size_t>(m.what)];
    if (m.what != act::deliver && m.what != act::repeat) return out;
    static constexpr std::array<const char*, 7> kinds{"need", "grad",  "ack", "go",
                                                      "done", "abort", "end"};
    const std::size_t index = wire(m.a, m.b)[m.which].body.index();
    return out + " message " + (index < kinds.size() ? std::to_string(index) : "?");
  }
  void make(const move& m) {
    switch (m.what) {
    case act::deliver: {
      auto& queue = wires[m.a * world_size + m.b].change();
      control c = std::move(queue[m.which]);
      queue.erase(queue.begin() + m.which);
      return arrive(m.a, m.b, std::move(c));
    }
    case act::repeat:
      --rules.repeats;
      return arrive(m.a, m.b, control(wire(m.a, m.b)[m.which]));
    case act::run:
      return run(m.a, m.b);
    case act::fail:
      --rules.fails;
      faults = true;
      return feed(m.a, failed{abort_reason::failed, "no"});
    case act::kill:
      --rules.kills;
      return kill(m.a);
    case act::cut:
      --rules.cuts;
      faults = true;
      severed_ |= 1u << (m.a + m.b);
      if (m.a == 0 || linked(m.a, m.b)) {
        notices.emplace(m.a, m.b);
        notices.emplace(m.b, m.a);
      }
      return;
    case act::notice: {
      notices.erase({m.a, m.b});
      // Whoever loses rank 0 ends, and those who have met it lose it.
      if (m.b == 0 && at[0]->alive) return kill(m.a);
      const bool news = at[m.a].change().told.insert(m.b).second;
      clear(m.b, m.a);
      feed(m.a, lost{m.b});
      if (m.a != 0 || !news) return;
      for (worker_rank other = 1; other < world_size; ++other) {
        if (other != m.b) notices.emplace(other, m.b);  // rank 0 tells them
      }
      return;
    }
    }
  }

  // ── what is promised ──

  void audit() const {
    bool committed = false;
    for (const auto& w : at) {
      hold(w->aborts + w->commits <= 1, "a pass ends once");
      committed = committed || w->commits > 0;
    }
    if (!committed) return;
    for (const history::place p : graph->needed) {
      hold(ran.contains(p), "no gradient becomes visible before all are there, of", p.first,
           p.second);
    }
  }
  void finish() const {
    for (worker_rank w = 0; w < world_size; ++w) {
      if (at[w]->alive) hold(!at[w]->plan, "nobody keeps a pass", w);
    }
    const worker& first = *at[graph->first];
    if (faults) {
      if (first.alive) hold(first.commits + first.aborts == 1, "the caller hears of its end");
      if (!first.alive) return;
      const auto cut_off = [&](worker_rank w) {
        return w != graph->first && severed(w, graph->first);
      };
      if (!result) {
        for (const auto& w : at) hold(w->commits == 0, "what failed is nobody's");
        return;
      }
      for (const history::place p : graph->needed) {
        const worker& with_part = *at[p.first];
        if (with_part.alive && !cut_off(p.first))
          hold(with_part.commits == 1, "a success is everybody's", p.first);
      }
      return;
    }
    hold(result.has_value(), "without a fault it succeeds");
    std::set<worker_rank> parts;
    for (const history::place p : graph->needed) parts.insert(p.first);
    for (worker_rank w = 0; w < world_size; ++w) {
      hold(at[w]->commits == (parts.contains(w) ? 1 : 0), "who has a part commits", w);
    }
    parts.erase(graph->first);
    hold(*result == std::vector<worker_rank>(parts.begin(), parts.end()), "all are named");
    hold(ran == graph->needed, "what is needed ran, and nothing else");
  }

  void encode(encoder& e) const {
    e << rules.repeats << rules.fails << rules.kills << rules.cuts << severed_ << (faults ? 1 : 0)
      << (result ? 1 : 0);
    for (const auto& w : at) {
      e << (w->plan ? 1 : 0) << (w->ended.contains(pass) ? 1 : 0) << (w->alive ? 1 : 0) << w->to_run
        << w->ran << (w->all_known ? 1 : 0) << static_cast<std::uint64_t>(w->commits)
        << static_cast<std::uint64_t>(w->aborts);
      e.list(w->left);
      e.list(w->grow);
      e.list(w->ready);
      e.list(w->told);
      if (w->plan) encode(e, *w->plan);
    }
    const auto two = [&](const auto& pair) { e << pair.first << pair.second; };
    e.list(notices, two);
    e.list(ran, two);
    e.list(spoke, two);
    for (const auto& queue : wires) {
      std::uint64_t sum = 0;  // where anything may pass anything, the order says nothing
      for (const control& c : *queue) {
        encoder one;
        encode(one, c);
        if (rules.in_order) {
          e << one.done().low;
        } else {
          sum += one.done().low;
        }
      }
      e << queue->size() << sum;
    }
  }

 private:
  static void encode(encoder& e, const control& c) {
    const std::vector<std::byte> bytes = weft::autograd::encode(c);
    e << std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void encode(encoder& e, const wave& w) const {
    exploring::with_members(
        w, [&](auto phase, const auto& settings, const auto& opens, const auto& visited,
               const auto& open, const auto& dependencies, auto needed_nodes, const auto& needed,
               const auto& premature, const auto& early, const auto& asked, const auto& asked_by,
               auto deficit, const auto& parent, const auto& below, const auto& waiting,
               const auto& leads_to, bool discovered, const auto& lost_ones,
               const auto& participants, const auto& done) {
          e << static_cast<std::uint64_t>(phase) << static_cast<std::uint64_t>(settings.retention)
            << (opens ? 1 : 0) << needed_nodes << deficit << (discovered ? 1 : 0);
          e.list(visited);
          e.list(open);
          e.list(dependencies);
          e.list(needed, [&](const auto& n) {
            e << n.first << n.second.node << n.second.peer << (n.second.arrived ? 1 : 0);
          });
          e.list(premature, [&](const auto& p) { e << p.first << p.second; });
          e.list(early);
          e.list(asked, [&](const auto& a) {
            e << a.first << a.second.next;
            e.list(a.second.open);
            e.list(a.second.early, [&](const auto& ack) {
              e << ack.first;
              encode(e, control{pass, ack.second});
            });
          });
          e.list(asked_by, [&](const auto& a) {
            e << a.first;
            exploring::with_members(a.second, [&](std::uint64_t next, const auto& beyond) {
              e << next;
              e.list(beyond);
            });
          });
          e << (parent ? 1 : 0);
          if (parent) e << parent->from << parent->sequence;
          for (const auto* set : {&below, &waiting, &leads_to, &lost_ones, &participants, &done}) {
            e.list(*set);
          }
        });
  }

  const std::vector<control>& wire(worker_rank from, worker_rank to) const {
    return *wires[from * world_size + to];
  }
  void clear(worker_rank from, worker_rank to) {
    if (!wire(from, to).empty()) wires[from * world_size + to].change().clear();
  }
  /// They have called each other, or met in the pass.
  [[nodiscard]] bool linked(worker_rank a, worker_rank b) const {
    return graph->linked(a, b) || spoke.contains({a, b}) || spoke.contains({b, a});
  }
  [[nodiscard]] bool severed(worker_rank a, worker_rank b) const {
    return (severed_ >> (a + b) & 1u) != 0;
  }
  void kill(worker_rank who) {
    faults = true;
    at[who].change().alive = false;
    at[who].change().plan.reset();
    for (worker_rank other = 0; other < world_size; ++other) {
      clear(other, who);
      if (other == who) continue;
      if (who == 0 || other == 0 || linked(other, who)) notices.emplace(other, who);
    }
  }
  void send(worker_rank from, worker_rank to, const control& c) {
    hold(to != from && to < world_size, "messages go to others", from);
    spoke.insert({from, to});
    if (!at[to]->alive || severed(from, to)) {
      notices.emplace(from, to);
      if (at[to]->alive) notices.emplace(to, from);
    } else if (!at[from]->told.contains(to)) {
      wires[from * world_size + to].change().push_back(c);
    }
  }
  void arrive(worker_rank from, worker_rank to, control c) {
    if (!at[to]->plan) {
      const admission a = at[to].change().ended.admit(c, to);
      hold(a != admission::refuse, "no message of a correct worker is refused, at", to);
      if (a == admission::stale) {
        // As the engine does: who takes part may not have been told.
        if (to == graph->first && from != to && !result &&
            !std::holds_alternative<abort_message>(c.body)) {
          send(to, from, control{pass, abort_message{to, abort_reason::refused, ""}});
        }
        return;
      }
      at[to].change().plan.emplace(c.pass, to, world_size);
      feed(to, arrived{from, std::move(c.body)});
      look_for_lost(to);
      return;
    }
    feed(to, arrived{from, std::move(c.body)});
  }
  /// As the engine does: whoever is lost already, nobody tells of again.
  void look_for_lost(worker_rank w) {
    const std::set<worker_rank> told = at[w]->told;
    std::set<worker_rank> asked{graph->first};
    if (rules.how == mode::fast && at[w]->plan) {
      const wave& mine = *at[w]->plan;
      mine.each_missing([&](const peer_message& m) { asked.insert(m.peer); });
      asked.insert(mine.participants().begin(), mine.participants().end());
    }
    for (const worker_rank gone : asked) {
      if (told.contains(gone)) feed(w, lost{gone});
    }
  }
  void feed(worker_rank w, const wave_input::any& in) {
    if (!at[w]->plan) return;
    part& mine = const_cast<part&>(graph->parts[w]);  // `freeze` changes nothing
    for (const wave_output::any& out : at[w].change().plan->step(in, mine)) act_on(w, out);
    worker& s = at[w].change();
    if (s.plan->over()) {
      s.ended.add(pass);
      s.plan.reset();
      s.ready.clear();
    } else {
      maybe_drained(w);
    }
  }
  void maybe_drained(worker_rank w) {
    if (!at[w]->all_known || at[w]->ran != at[w]->to_run) return;
    at[w].change().all_known = false;
    feed(w, drained{});
  }
  void act_on(worker_rank w, const wave_output::any& out) {
    if (const auto* t = std::get_if<transmit>(&out)) return send(w, t->to, t->message);
    worker& s = at[w].change();
    const auto& roots = graph->roots;
    const auto is_root = [&](node_index n) {
      return w == graph->first && std::count(roots.begin(), roots.end(), n) != 0;
    };
    if (std::holds_alternative<launch>(out)) {
      const auto deps = s.plan->dependencies();
      const bool early = s.plan->phase() == wave_phase::discover;
      s.left.assign(graph->parts[w].nodes.size(), 0);
      for (node_index n = 0; n < s.left.size(); ++n) {
        if (early && s.plan->may_grow(n)) {
          s.grow.insert(n);
        } else if (n < deps.size()) {
          s.left[n] = static_cast<int>(deps[n]);
        }
        if (is_root(n) && s.left[n] == 0 && !s.grow.contains(n)) s.ready.insert(n);
      }
      if (!early) know_all(w);
    } else if (std::holds_alternative<complete>(out)) {
      const auto deps = s.plan->dependencies();
      for (const node_index n : std::exchange(s.grow, {})) {
        if (n >= deps.size()) continue;
        s.left[n] += static_cast<int>(deps[n]);
        if (s.left[n] == 0 && (deps[n] != 0 || is_root(n))) s.ready.insert(n);
      }
      know_all(w);
    } else if (const auto* st = std::get_if<start>(&out)) {
      hold(s.left.at(st->node) == 0, "a gradient enters where nothing else does, at", w);
      s.ready.insert(st->node);
    } else if (std::holds_alternative<commit>(out)) {
      ++s.commits;
    } else if (const auto* f = std::get_if<finished>(&out)) {
      hold(!result, "it is finished once");
      result = f->participants;
    } else if (std::holds_alternative<aborted>(out)) {
      ++s.aborts;
      hold(faults, "nothing is given up without a fault, at", w);
    } else if (const auto* v = std::get_if<violation>(&out)) {
      throw exploring::broken("a correct worker is accused: " + v->text);
    }
  }
  void know_all(worker_rank w) {
    worker& s = at[w].change();
    s.to_run = static_cast<std::size_t>(
        std::count_if(graph->needed.begin(), graph->needed.end(),
                      [&](const history::place& p) { return p.first == w; }));
    s.all_known = true;
  }
  void run(worker_rank w, node_index n) {
    const history::place here{w, n};
    hold(graph->needed.contains(here), "only what is needed runs", w, n);
    hold(ran.insert(here).second, "a node runs once", w, n);
    if (const auto first = graph->before.find(here); first != graph->before.end()) {
      for (const history::place p : first->second) {
        hold(ran.contains(p), "a node runs after those that lead to it", w, n);
      }
    }
    worker& s = at[w].change();
    s.ready.erase(n);
    ++s.ran;
    const auto& node = graph->parts[w].nodes[n];
    for (const node_index e : node.edges) {
      const bool grows = s.grow.contains(e);
      hold(grows || s.left[e] > 0, "no more edges lead to a node than were counted", w, e);
      if (--s.left[e] == 0 && !grows) s.ready.insert(e);
    }
    if (node.receive) {
      grad_message g;
      g.message = node.receive->message;
      g.opens = s.plan->opens();
      send(w, node.receive->peer, control{pass, g});
    }
    maybe_drained(w);
  }

  const history* graph;
  plan rules;
  pass_id pass;
  std::vector<exploring::shared<worker>> at;
  std::vector<exploring::shared<std::vector<control>>> wires;
  std::set<std::pair<worker_rank, worker_rank>> notices;  // who hears, who is gone
  std::set<std::pair<worker_rank, worker_rank>> spoke;
  std::set<history::place> ran;
  std::optional<std::vector<worker_rank>> result;
  bool faults = false;
  unsigned severed_ = 0;  // a link, by the sum of its ranks
};

enum class unused : std::uint8_t { none, some };
/// 0 sends to 1, that to 2, which answers 0; 1 has a value of its own, and something that it said is
/// not needed.
history round_trip(unused outputs = unused::some) {
  history h;
  const auto own = h.op(1, {});
  const auto at_1 = h.op(1, {h.transfer(0, h.op(0, {}), 1), own});
  if (outputs == unused::some) h.transfer(1, own, 2);
  const auto at_2 = h.op(2, {h.transfer(1, at_1, 2)});
  h.pass_from(0, {h.op(0, {h.transfer(2, at_2, 0)})});
  return h;
}
/// 1 and 2 both work on what 0 sent them, and 0 on their answers; something is not needed.
history fan(unused outputs = unused::some) {
  history h;
  const auto given = h.op(0, {});
  const auto from_1 = h.transfer(1, h.op(1, {h.transfer(0, given, 1)}), 0);
  const auto from_2 = h.transfer(2, h.op(2, {h.transfer(0, given, 2)}), 0);
  if (outputs == unused::some) h.transfer(0, given, 2);
  h.pass_from(0, {h.op(0, {from_1, from_2})});
  return h;
}
/// 1 and 2 work on what they sent each other; the pass begins at 1, and leads back to it.
history crossing(unused outputs = unused::some) {
  history h;
  const auto at_1 = h.op(1, {});
  const auto at_2 = h.op(2, {});
  const auto mixed_2 = h.op(2, {at_2, h.transfer(1, at_1, 2)});
  const auto mixed_1 = h.op(1, {at_1, h.transfer(2, at_2, 1)});
  const auto back = h.transfer(2, mixed_2, 1);
  if (outputs == unused::some) h.transfer(1, mixed_1, 0);
  h.pass_from(1, {h.op(1, {mixed_1, back})});
  return h;
}

TEST_CASE("wave explored: messages that pass each other and come again") {
  const history trip = round_trip(), both = fan(), cross = crossing();
  exploring::explore("a round trip", world(trip, {.repeats = 2}), 200'000);
  exploring::explore("two branches", world(both, {.repeats = 1}), 200'000);
  exploring::explore("a crossing", world(cross, {.repeats = 1}), 200'000);
}

TEST_CASE("wave explored: a pass fails at any moment, anywhere") {
  const history trip = round_trip(), both = fan(), cross = crossing();
  exploring::explore("a round trip", world(trip, {.fails = 1}), 200'000);
  exploring::explore("two branches", world(both, {.fails = 1}), 200'000);
  exploring::explore("a crossing", world(cross, {.fails = 2}), 200'000);
}

TEST_CASE("wave explored: a worker is lost at any moment") {
  const history trip = round_trip(), both = fan(), cross = crossing();
  exploring::explore("a round trip", world(trip, {.kills = 1}), 200'000);
  exploring::explore("two branches", world(both, {.kills = 1, .in_order = true}), 200'000);
  exploring::explore("a crossing", world(cross, {.kills = 1}), 200'000);
}

TEST_CASE("wave explored: a link is lost at any moment") {
  const history trip = round_trip(), both = fan(), cross = crossing();
  exploring::explore("a round trip", world(trip, {.cuts = 1}), 300'000);
  exploring::explore("two branches", world(both, {.cuts = 1, .in_order = true}), 300'000);
  exploring::explore("a crossing", world(cross, {.cuts = 1}), 300'000);
}

TEST_CASE("wave explored: passes without discovery") {
  const history trip = round_trip(unused::none), both = fan(unused::none),
                cross = crossing(unused::none);
  const auto explore = [](const char* what, const history& h, plan p) {
    p.how = mode::fast;
    exploring::explore(what, world(h, p), 200'000);
  };
  for (const history* h : {&trip, &both, &cross}) {
    explore("repeats", *h, {.repeats = 2});
    explore("failures", *h, {.repeats = 1, .fails = 2});
    explore("a lost worker", *h, {.kills = 1});
    explore("a lost link", *h, {.cuts = 1});
  }
}

TEST_CASE("wave explored: more of everything" * doctest::skip(!exploring::widely())) {
  const history trip = round_trip(), both = fan(), cross = crossing();
  exploring::explore("a round trip, a failure, a repetition",
                     world(trip, {.repeats = 1, .fails = 1}), 200'000);
  exploring::explore("two branches, repeats", world(both, {.repeats = 2}), 200'000);
  exploring::explore("a round trip, all", world(trip, {.repeats = 2, .fails = 1, .kills = 1}),
                     200'000);
  exploring::explore("a crossing, two lost", world(cross, {.repeats = 1, .kills = 2}), 200'000);
  const history used = round_trip(unused::none), crossed = crossing(unused::none);
  exploring::explore("a round trip without discovery, all",
                     world(used, {.repeats = 1, .fails = 1, .kills = 1, .how = mode::fast}),
                     200'000);
  exploring::explore("a crossing without discovery, two lost",
                     world(crossed, {.repeats = 1, .kills = 2, .how = mode::fast}), 200'000);
}

}  // namespace waves
