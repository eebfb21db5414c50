// SPDX-License-Identifier: BSL-1.0
// The discovery wave on an in-memory network of abstract graphs, without libtorch.

#include <weft/autograd/ended_passes.hpp>
#include <weft/autograd/messages.hpp>
#include <weft/autograd/wave.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <autograd/wave_graph.hpp>
#include <core/run_all.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace weft::autograd;
using namespace weft::autograd::wave_input;
using namespace weft::autograd::wave_output;
using weft::testing::rounds;
using weft::testing::test_graph;

constexpr context_id the_context = 7;

/// Numbers that are the same everywhere for a seed.
class dice {
 public:
  explicit dice(std::uint32_t seed) : engine_(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

static_assert(graph<test_graph>);

/// A forward history over several workers.
struct history {
  explicit history(worker_rank world) : workers(world) {}

  /// Sends what `nodes` of `from` produced to `to`; returns the receive node there.
  node_index transfer(worker_rank from, std::vector<node_index> nodes, worker_rank to) {
    const message_id id = ++last;
    const node_index s = workers[from].add(std::move(nodes));
    workers[from].sends[id] = {s, to};
    const node_index r = workers[to].add({});
    workers[to].nodes[r].receive = peer_message{from, id, the_context};
    return r;
  }
  node_index op(worker_rank at, std::vector<node_index> inputs) {
    return workers[at].add(std::move(inputs));
  }

  using place = std::pair<worker_rank, node_index>;
  std::vector<place> successors(place p) const {
    const auto& n = workers[p.first].nodes[p.second];
    std::vector<place> out;
    for (node_index e : n.edges) out.emplace_back(p.first, e);
    if (n.receive) {
      out.emplace_back(n.receive->peer, workers[n.receive->peer].sends.at(n.receive->message).node);
    }
    return out;
  }
  std::set<place> needed(worker_rank initiator, const std::vector<node_index>& roots) const {
    std::set<place> seen;
    std::vector<place> stack;
    for (node_index r : roots) stack.emplace_back(initiator, r);
    while (!stack.empty()) {
      const place p = stack.back();
      stack.pop_back();
      if (!seen.insert(p).second) continue;
      for (place next : successors(p)) stack.push_back(next);
    }
    return seen;
  }

  std::vector<test_graph> workers;
  message_id last = 0;
};

enum class delivery { in_order, shuffled, duplicated };

/// Workers, their waves, and what is on its way between them. Runs one pass.
class network {
 public:
  network(history h, worker_rank initiator, std::vector<node_index> roots, std::uint32_t seed,
          delivery mode = delivery::in_order)
      : history_(std::move(h)),
        pass_{the_context, initiator, 1},
        roots_(std::move(roots)),
        mode_(mode),
        random_(seed),
        world_(static_cast<worker_rank>(history_.workers.size())),
        at_(world_) {}

  void begin_pass() {
    make_wave(pass_.initiator);
    feed(pass_.initiator, begin{roots_});
  }
  /// One delivery, or one node run. False if nothing is left to do.
  bool advance() {
    std::vector<std::pair<worker_rank, worker_rank>> choices;
    for (const auto& [pair, queue] : wires_) {
      if (!queue.empty()) choices.push_back(pair);
    }
    std::vector<worker_rank> runners;
    for (worker_rank w = 0; w < world_; ++w) {
      if (!at_[w].ready.empty() && !dead_.contains(w)) runners.push_back(w);
    }
    std::vector<worker_rank> walking(walks_.begin(), walks_.end());
    const std::size_t total = choices.size() + runners.size() + walking.size() + notices_.size();
    if (total == 0) return false;
    std::size_t pick = random_() % total;
    if (pick < choices.size()) {
      deliver(choices[pick]);
    } else if (pick -= choices.size(); pick < runners.size()) {
      run_node(runners[pick]);
    } else if (pick -= runners.size(); pick < walking.size()) {
      walks_.erase(walking[pick]);
      if (!dead_.contains(walking[pick])) feed(walking[pick], walk_on{});
    } else {
      pick -= walking.size();
      const auto [who, gone] = notices_[pick];
      notices_.erase(notices_.begin() + static_cast<std::ptrdiff_t>(pick));
      const bool news = at_[who].told.insert(gone).second;
      wires_[{gone, who}].clear();  // its link is closed
      if (!dead_.contains(who)) feed(who, lost{gone});
      if (who != 0 || !news) return true;
      for (worker_rank other = 1; other < world_; ++other) {
        if (other != gone) notices_.emplace_back(other, gone);
      }
    }
    return true;
  }
  void run() {
    // bounded: each turn delivers one message, and only those of a pass beget others
    while (advance()) {
    }
  }
  /// As the real service tells it: whoever has a link to it notices by itself, as does rank 0; the
  /// others hear it from rank 0, when that has noticed.
  void kill(worker_rank w) {
    dead_.insert(w);
    at_[w].ready.clear();
    for (worker_rank other = 0; other < world_; ++other) {
      wires_[{other, w}].clear();
      if (other == w) continue;
      if (w == 0 || other == 0 || are_linked(other, w)) notices_.emplace_back(other, w);
    }
  }
  void fail_at(worker_rank w, std::string text) {
    if (at_[w].plan) feed(w, failed{abort_reason::failed, std::move(text)});
  }
  void inject(worker_rank from, worker_rank to, control c) { arrive(from, to, std::move(c)); }

  void check_success() {
    const auto needed = history_.needed(pass_.initiator, roots_);
    std::set<history::place> ran;
    for (const auto& p : order_) CHECK_MESSAGE(ran.insert(p).second, "a node ran twice");
    CHECK(ran == needed);
    std::map<history::place, std::size_t> when;
    for (std::size_t i = 0; i < order_.size(); ++i) when[order_[i]] = i;
    for (const auto& p : order_) {
      for (const auto& next : history_.successors(p)) CHECK(when.at(p) < when.at(next));
    }
    std::set<worker_rank> parts;
    for (const auto& p : needed) parts.insert(p.first);
    parts.erase(pass_.initiator);
    REQUIRE(finished_.has_value());
    CHECK(finished_->participants == std::vector<worker_rank>(parts.begin(), parts.end()));
    for (worker_rank w = 0; w < world_; ++w) {
      const bool part = parts.contains(w) || w == pass_.initiator;
      CHECK(at_[w].commits == (part ? 1 : 0));
      CHECK(at_[w].aborts.empty());
      CHECK(!at_[w].plan.has_value());
      if (!part) CHECK(messages_to(w) == 0);
    }
    CHECK(violations_.empty());
  }
  /// Either everybody alive committed nothing and the initiator heard why, or the pass had ended.
  void check_dropped() {
    for (worker_rank w = 0; w < world_; ++w) {
      if (dead_.contains(w)) continue;
      CHECK_MESSAGE(!at_[w].plan.has_value(), "worker " << w << " kept a pass");
      CHECK(at_[w].aborts.size() <= 1);
    }
    if (!dead_.contains(pass_.initiator)) {
      CHECK((finished_.has_value() || at_[pass_.initiator].aborts.size() == 1));
      if (!finished_) {
        for (worker_rank w = 0; w < world_; ++w) CHECK(at_[w].commits == 0);
      }
    }
    CHECK(violations_.empty());
  }
  std::size_t messages_to(worker_rank w) const {
    const auto found = sent_to_.find(w);
    return found == sent_to_.end() ? 0 : found->second;
  }
  std::size_t messages() const {
    std::size_t n = 0;
    for (const auto& [to, count] : sent_to_) n += count;
    return n;
  }
  const std::vector<aborted>& aborts(worker_rank w) const { return at_[w].aborts; }
  const std::vector<violation>& violations() const { return violations_; }
  const std::optional<finished>& result() const { return finished_; }
  const pass_id& pass() const { return pass_; }
  std::size_t runs() const { return order_.size(); }
  /// How often nodes ran before discovery was over.
  std::size_t early_launches() const { return early_launches_; }

 private:
  struct worker_state {
    std::optional<wave> plan;
    ended_passes ended;
    std::vector<int> left;  // dependencies to come; of nodes that may grow: minus those that came
    std::set<node_index> grow;
    std::size_t to_run = 0;  // once all is known
    std::size_t ran = 0;
    bool all_known = false;
    std::vector<node_index> ready;
    std::set<worker_rank> told;  // to be lost
    int commits = 0;
    std::vector<aborted> aborts;
  };

  /// They have called each other, or met in the pass.
  bool are_linked(worker_rank a, worker_rank b) const {
    const auto sent = [&](worker_rank from, worker_rank to) {
      const auto& sends = history_.workers[from].sends;
      return spoke_.contains({from, to}) ||
             std::any_of(sends.begin(), sends.end(),
                         [&](const auto& s) { return s.second.peer == to; });
    };
    return sent(a, b) || sent(b, a);
  }
  void make_wave(worker_rank w) {
    at_[w].plan.emplace(pass_, w, world_);
    if (random_() % 2 == 0) at_[w].plan->walk_in_pieces_of(1 + random_() % 3);
  }

  void transmit_to(worker_rank from, worker_rank to, control c) {
    REQUIRE(to != from);
    REQUIRE(to < world_);
    ++sent_to_[to];
    spoke_.insert({from, to});
    if (dead_.contains(to)) {
      notices_.emplace_back(from, to);
      return;
    }
    const auto bytes = encode(c);
    const auto back = decode(bytes);
    REQUIRE(back.has_value());
    REQUIRE(*back == c);
    wires_[{from, to}].push_back(std::move(c));
  }
  void deliver(std::pair<worker_rank, worker_rank> pair) {
    auto& queue = wires_[pair];
    std::size_t which = 0;
    if (mode_ != delivery::in_order) which = random_() % queue.size();
    control c = queue[which];
    const bool again = mode_ == delivery::duplicated && random_() % 3 == 0;
    if (!again) queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(which));
    arrive(pair.first, pair.second, std::move(c));
  }
  void arrive(worker_rank from, worker_rank to, control c) {
    worker_state& w = at_[to];
    if (!w.plan) {
      switch (w.ended.admit(c, to)) {
      case admission::stale:
        return;
      case admission::refuse:
        violations_.push_back({from, "refused"});
        return;
      case admission::fresh:
        w.plan.emplace(c.pass, to, world_);
        feed(to, arrived{from, std::move(c.body)});
        if (w.told.contains(pass_.initiator)) feed(to, lost{pass_.initiator});
        return;
      }
    }
    feed(to, arrived{from, std::move(c.body)});
  }
  void feed(worker_rank w, const wave_input::any& in) {
    worker_state& s = at_[w];
    if (!s.plan) return;
    for (const wave_output::any& out : s.plan->step(in, history_.workers[w])) act(w, out);
    if (s.plan && s.plan->over()) {
      s.ended.add(pass_);
      s.plan.reset();
      s.ready.clear();
      return;
    }
    maybe_drained(w);
  }
  void maybe_drained(worker_rank w) {
    worker_state& s = at_[w];
    if (s.all_known && s.ran == s.to_run) {
      s.all_known = false;
      feed(w, drained{});
    }
  }
  void act(worker_rank w, const wave_output::any& out) {
    worker_state& s = at_[w];
    if (const auto* t = std::get_if<transmit>(&out)) {
      transmit_to(w, t->to, t->message);
    } else if (std::get_if<launch>(&out) != nullptr) {
      const auto deps = s.plan->dependencies();
      const bool early = s.plan->phase() == wave_phase::discover;
      early_launches_ += early ? 1 : 0;
      s.left.assign(history_.workers[w].nodes.size(), 0);
      for (node_index n = 0; n < s.left.size(); ++n) {
        if (early && s.plan->may_grow(n)) {
          s.grow.insert(n);
        } else if (n < deps.size()) {
          s.left[n] = static_cast<int>(deps[n]);
        }
      }
      if (w == pass_.initiator) {
        for (node_index r : std::set<node_index>(roots_.begin(), roots_.end())) {
          if (s.left[r] == 0 && !s.grow.contains(r)) s.ready.push_back(r);
        }
      }
      if (!early) know_all(w);
    } else if (std::get_if<complete>(&out) != nullptr) {
      const auto deps = s.plan->dependencies();
      for (node_index n : std::exchange(s.grow, {})) {
        if (n >= deps.size()) continue;
        s.left[n] += static_cast<int>(deps[n]);
        const bool root = std::count(roots_.begin(), roots_.end(), n) != 0;
        if (s.left[n] == 0 && (deps[n] != 0 || root)) s.ready.push_back(n);
      }
      know_all(w);
    } else if (const auto* st = std::get_if<start>(&out)) {
      CHECK(s.left[st->node] == 0);
      s.ready.push_back(st->node);
    } else if (std::get_if<wave_output::walks>(&out) != nullptr) {
      walks_.insert(w);
    } else if (std::get_if<commit>(&out) != nullptr) {
      ++s.commits;
    } else if (const auto* f = std::get_if<finished>(&out)) {
      CHECK(!finished_.has_value());
      finished_ = *f;
    } else if (const auto* a = std::get_if<aborted>(&out)) {
      s.aborts.push_back(*a);
    } else if (const auto* v = std::get_if<violation>(&out)) {
      violations_.push_back(*v);
    }
  }
  void know_all(worker_rank w) {
    const auto needed = history_.needed(pass_.initiator, roots_);
    at_[w].to_run = static_cast<std::size_t>(
        std::count_if(needed.begin(), needed.end(), [&](const auto& p) { return p.first == w; }));
    at_[w].all_known = true;
  }
  void run_node(worker_rank w) {
    worker_state& s = at_[w];
    const std::size_t pick = random_() % s.ready.size();
    const node_index n = s.ready[pick];
    s.ready.erase(s.ready.begin() + static_cast<std::ptrdiff_t>(pick));
    order_.emplace_back(w, n);
    ++s.ran;
    const auto edge = [&](node_index e) {
      const bool grows = s.grow.contains(e);
      REQUIRE((grows || s.left[e] > 0));
      if (--s.left[e] == 0 && !grows) s.ready.push_back(e);
    };
    const auto& node = history_.workers[w].nodes[n];
    for (node_index e : node.edges) edge(e);
    if (node.receive && node.receive->peer == w) {
      edge(history_.workers[w].sends.at(node.receive->message).node);
    } else if (node.receive) {
      grad_message g;
      g.message = node.receive->message;
      transmit_to(w, node.receive->peer, control{pass_, g});
    }
    maybe_drained(w);
  }

  history history_;
  pass_id pass_;
  std::vector<node_index> roots_;
  delivery mode_;
  dice random_;
  worker_rank world_;
  std::vector<worker_state> at_;
  std::map<std::pair<worker_rank, worker_rank>, std::deque<control>> wires_;
  std::vector<std::pair<worker_rank, worker_rank>> notices_;  // (who hears, who is gone)
  std::set<worker_rank> dead_;
  std::map<worker_rank, std::size_t> sent_to_;
  std::set<std::pair<worker_rank, worker_rank>> spoke_;
  std::vector<history::place> order_;
  std::optional<finished> finished_;
  std::vector<violation> violations_;
  std::size_t early_launches_ = 0;
  std::set<worker_rank> walks_;  // who has a walk under way
};

struct random_case {
  history h{1};
  worker_rank initiator = 0;
  std::vector<node_index> roots;
};

random_case random_history(std::uint32_t seed) {
  dice random(seed);
  const worker_rank world = 1 + random() % 5;
  random_case c{history(world), 0, {}};
  for (worker_rank w = 0; w < world; ++w) c.h.op(w, {});  // a leaf each
  const auto pick_nodes = [&](worker_rank w) {
    std::vector<node_index> nodes;
    const auto count = 1 + random() % 3;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto size = static_cast<std::uint32_t>(c.h.workers[w].nodes.size());
      // Mostly recent ones, so that paths get long. Send nodes have no tensor to build on.
      const auto back = random() % (random() % 2 == 0 ? std::min<std::uint32_t>(size, 3) : size);
      const auto n = static_cast<node_index>(size - 1 - back);
      const bool is_send = std::any_of(c.h.workers[w].sends.begin(), c.h.workers[w].sends.end(),
                                       [&](const auto& s) { return s.second.node == n; });
      nodes.push_back(is_send ? 0 : n);
    }
    return nodes;
  };
  const auto steps = 3 + random() % 40;
  for (std::uint32_t i = 0; i < steps; ++i) {
    const worker_rank w = random() % world;
    if (random() % 2 == 0) {
      c.h.op(w, pick_nodes(w));
    } else {
      c.h.transfer(w, pick_nodes(w), random() % world);
    }
  }
  c.initiator = random() % world;
  c.roots = pick_nodes(c.initiator);
  return c;
}

}  // namespace

TEST_CASE("wave: roots that need nothing remote send no message") {
  history h(3);
  const auto leaf = h.op(0, {});
  h.transfer(0, {leaf}, 1);
  const auto loss = h.op(0, {leaf, leaf});
  network net(std::move(h), 0, {loss}, 1);
  net.begin_pass();
  net.run();
  net.check_success();
  CHECK(net.messages() == 0);
}

TEST_CASE("wave: a caller that ignores the result of a call does not hang") {
  history h(2);
  const auto x = h.op(0, {});
  const auto arg = h.transfer(0, {x}, 1);
  const auto y = h.op(1, {arg});
  h.transfer(1, {y}, 0);  // the result, unused
  const auto loss = h.op(0, {x});
  network net(std::move(h), 0, {loss}, 1);
  net.begin_pass();
  net.run();
  net.check_success();
  CHECK(net.messages() == 0);
}

TEST_CASE("wave: of two results in two calls, only the used one's send node is awaited") {
  history h(2);
  const auto w = h.op(1, {});
  const auto used = h.transfer(1, {h.op(1, {w})}, 0);
  h.transfer(1, {h.op(1, {w})}, 0);
  const auto loss = h.op(0, {used});
  network net(std::move(h), 0, {loss}, 1);
  net.begin_pass();
  net.run();
  net.check_success();
  CHECK(net.messages() == 6);  // need, ack, go, grad, done, end
}

TEST_CASE("wave: a needed path that leaves a worker and comes back") {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    history h(2);
    const auto p = h.op(1, {});
    const auto b1 = h.transfer(1, {p}, 0);
    const auto a1 = h.op(0, {b1});
    const auto b2 = h.op(1, {h.transfer(0, {a1}, 1), p});
    const auto loss = h.op(0, {h.transfer(1, {b2}, 0)});
    network net(std::move(h), 0, {loss}, seed);
    net.begin_pass();
    net.run();
    net.check_success();
  }
}

TEST_CASE("wave: a graph that leads back to the asker costs no ack of its own") {
  history h(2);
  const auto x = h.op(0, {});
  const auto y = h.op(1, {h.transfer(0, {x}, 1)});
  const auto loss = h.op(0, {h.transfer(1, {y}, 0)});
  network net(std::move(h), 0, {loss}, 1);
  net.begin_pass();
  net.run();
  net.check_success();
  CHECK(net.messages_to(0) == 4);  // need, ack, grad, done
  CHECK(net.messages_to(1) == 3);  // need, grad, end
  CHECK(net.early_launches() == 1);
}

TEST_CASE("wave: workers whose results are not used hear nothing") {
  history h(4);
  std::vector<node_index> results;
  const auto x = h.op(0, {});
  for (worker_rank w = 1; w < 4; ++w) {
    const auto y = h.op(w, {h.transfer(0, {x}, w)});
    results.push_back(h.transfer(w, {y}, 0));
  }
  const auto loss = h.op(0, {results[1]});
  network net(std::move(h), 0, {loss}, 3);
  net.begin_pass();
  net.run();
  net.check_success();
  CHECK(net.messages_to(1) == 0);
  CHECK(net.messages_to(2) > 0);
  CHECK(net.messages_to(3) == 0);
}

TEST_CASE("wave: two messages to one worker that merge at one leaf") {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    history h(3);
    const auto leaf = h.op(2, {});
    const auto left = h.op(1, {h.transfer(2, {h.op(2, {leaf})}, 1)});
    const auto right = h.transfer(2, {h.op(2, {leaf})}, 0);
    const auto loss = h.op(0, {h.transfer(1, {left}, 0), right});
    network net(std::move(h), 0, {loss}, seed);
    net.begin_pass();
    net.run();
    net.check_success();
  }
}

TEST_CASE("wave: a chain of a thousand messages to oneself") {
  history h(1);
  auto x = h.op(0, {});
  for (int i = 0; i < 1000; ++i) x = h.op(0, {h.transfer(0, {x}, 0)});
  network net(std::move(h), 0, {x}, 1);
  net.begin_pass();
  net.run();
  net.check_success();
  CHECK(net.messages() == 0);
  CHECK(net.runs() == 3001);
}

TEST_CASE("wave: a chain of a thousand messages between two workers") {
  history h(2);
  auto x = h.op(0, {});
  for (worker_rank i = 0; i < 1000; ++i) {
    const worker_rank to = (i + 1) % 2;
    x = h.op(to, {h.transfer(i % 2, {x}, to)});
  }
  network net(std::move(h), 0, {x}, 1);
  net.begin_pass();
  net.run();
  net.check_success();
}

TEST_CASE("wave: in random graphs each needed node runs once, after its needed predecessors") {
  for (std::uint32_t seed = 0; seed < rounds(300, 3000); ++seed) {
    CAPTURE(seed);
    auto c = random_history(seed);
    network net(std::move(c.h), c.initiator, c.roots, seed);
    net.begin_pass();
    net.run();
    net.check_success();
  }
}

TEST_CASE("wave: reordered and duplicated messages change nothing") {
  for (const delivery mode : {delivery::shuffled, delivery::duplicated}) {
    for (std::uint32_t seed = 0; seed < rounds(200, 2000); ++seed) {
      CAPTURE(seed);
      auto c = random_history(seed);
      network net(std::move(c.h), c.initiator, c.roots, seed, mode);
      net.begin_pass();
      net.run();
      net.check_success();
    }
  }
}

/// Does something to a worker in any phase of a pass, which then ends; `reports(net, who, initiator)`
/// checks what that one was told, if it was.
template <class Deed, class Reports>
void disturb(const Deed& deed, const Reports& reports) {
  std::size_t reported = 0;
  for (const delivery mode : {delivery::in_order, delivery::shuffled, delivery::duplicated}) {
    for (std::uint32_t seed = 0; seed < rounds(200, 2000); ++seed) {
      CAPTURE(seed);
      auto c = random_history(seed);
      const auto world = static_cast<worker_rank>(c.h.workers.size());
      network net(std::move(c.h), c.initiator, c.roots, seed, mode);
      dice random(seed + 1);
      const auto steps = random() % 60;
      const worker_rank who = random() % world;
      net.begin_pass();
      for (std::uint32_t i = 0; i < steps; ++i) net.advance();
      deed(net, who);
      net.run();
      net.check_dropped();
      if (!net.result() && reports(net, who, c.initiator)) ++reported;
    }
  }
  CHECK(reported > rounds(20, 300));
}

TEST_CASE("wave: a worker lost in any phase ends the pass everywhere") {
  disturb([](network& net, worker_rank who) { net.kill(who); },
          [](network& net, worker_rank who, worker_rank initiator) {
            if (who == initiator) return false;
            const auto& why = net.aborts(initiator).at(0);
            CHECK(why.reason == abort_reason::lost);
            CHECK(why.origin == who);
            return true;
          });
}

TEST_CASE("wave: a failure in any phase reaches the initiator by name and drops the pass") {
  disturb([](network& net, worker_rank who) { net.fail_at(who, "boom"); },
          [](network& net, worker_rank who, worker_rank initiator) {
            CHECK(net.aborts(initiator).at(0).origin == who);
            CHECK(net.aborts(initiator).at(0).text == "boom");
            return true;
          });
}

TEST_CASE("wave: a message id that was never recorded, or for another peer, aborts the pass") {
  history h(3);
  const auto p = h.op(1, {});
  const auto to_zero = h.transfer(1, {p}, 0);
  const auto loss = h.op(0, {to_zero});
  const auto run = [&](worker_rank from, message_id id) {
    network net(h, 0, {loss}, 1);
    net.begin_pass();
    net.inject(from, 1, control{net.pass(), need_message{0, graph_retention::release, {id}}});
    net.run();
    net.check_dropped();
    REQUIRE(net.aborts(0).size() == 1);
    CHECK(net.aborts(0)[0].reason == abort_reason::refused);
    CHECK(net.aborts(0)[0].origin == 1);
  };
  run(2, 999);  // never recorded
  run(2, 1);    // recorded, to worker 0
}

namespace {

/// A wave on worker 1 of three that worker 0 has asked for message 1.
struct asked {
  test_graph g;
  wave w{{the_context, 0, 1}, 1, 3};
  asked() {
    g.sends[1] = {g.add({g.add({})}), 0};
    g.sends[2] = {g.add({}), 2};
    const auto out = w.step(arrived{0, need_message{0, graph_retention::release, {1}}}, g);
    REQUIRE(out.size() == 1);
    CHECK(std::get<transmit>(out[0]).message.body == control_body(ack_message{0, {1}, 0, {1}}));
  }
  bool refuses(worker_rank from, control_body body) {
    const auto before = w.phase();
    const auto out = w.step(arrived{from, std::move(body)}, g);
    return out.size() == 1 && std::holds_alternative<violation>(out[0]) && w.phase() == before;
  }
  bool ignores(worker_rank from, control_body body) {
    return w.step(arrived{from, std::move(body)}, g).empty();
  }
};

}  // namespace

TEST_CASE("wave: what no correct worker sends is refused and changes nothing") {
  asked a;
  CHECK(a.refuses(0, ack_message{0, {}}));                                 // no need open
  CHECK(a.refuses(0, need_message{1, graph_retention::release, {}}));      // for nothing
  CHECK(a.refuses(0, need_message{1, graph_retention::release, {1}}));     // again
  CHECK(a.refuses(0, need_message{1, graph_retention::retain, {1}}));      // another mode
  CHECK(a.refuses(2, need_message{0, graph_retention::release, {2, 2}}));  // twice in one
  // Without a reply, though this worker waits for no ack of the sender.
  CHECK(a.refuses(2, need_message{0, graph_retention::release, {2}, need_reply::none}));
  CHECK(a.refuses(2, go_message{}));
  CHECK(a.refuses(2, end_message{}));
  CHECK(a.refuses(0, end_message{}));
  CHECK(a.refuses(0, done_message{}));
  CHECK(a.refuses(0, grad_message{99, 0, {}}));  // unknown
  CHECK(a.refuses(0, grad_message{2, 0, {}}));   // not needed
  CHECK(a.refuses(2, grad_message{1, 0, {}}));   // from the wrong peer
  CHECK(a.refuses(3, grad_message{1, 0, {}}));   // no such worker
  CHECK(a.refuses(1, grad_message{1, 0, {}}));   // from oneself
  CHECK(a.refuses(0, abort_message{3, abort_reason::failed, ""}));

  CHECK(a.ignores(0, need_message{0, graph_retention::release, {1}}));  // came twice
  CHECK(a.ignores(0, grad_message{1, 0, {}}));                          // early: parked
  CHECK(a.ignores(0, grad_message{1, 0, {}}));                          // came twice
  const auto out = a.w.step(arrived{0, go_message{}}, a.g);
  REQUIRE(out.size() == 2);
  CHECK(std::holds_alternative<launch>(out[0]));
  CHECK(std::get<start>(out[1]).message == 1);
  CHECK(a.ignores(0, go_message{}));
  CHECK(a.ignores(0, grad_message{1, 0, {}}));
  CHECK(a.refuses(2, need_message{0, graph_retention::release, {2}}));  // discovery is over
  CHECK(a.w.dependencies()[0] == 1);
}

TEST_CASE("wave: an ack that was not asked for is refused") {
  test_graph g;
  const auto r = g.add({});
  g.nodes[r].receive = peer_message{1, 5, the_context};
  wave w({the_context, 0, 1}, 0, 3);
  const auto out = w.step(begin{{r}}, g);
  REQUIRE(out.size() == 2);
  CHECK(std::get<transmit>(out[0]).to == 1);
  CHECK(std::holds_alternative<launch>(out[1]));
  const auto refused = [&](worker_rank from, ack_message m) {
    const auto o = w.step(arrived{from, std::move(m)}, g);
    return o.size() == 1 && std::holds_alternative<violation>(o[0]);
  };
  CHECK(refused(2, {0, {2}}));          // never asked
  CHECK(refused(1, {1, {1}}));          // a sequence not yet used
  CHECK(refused(1, {0, {3}}));          // an impossible worker
  CHECK(refused(1, {0, {1}, 0, {3}}));  // one that waits
  // Lists of more than there are, which would be kept until needs have come that never do.
  constexpr std::uint32_t never = 0xffffffff;
  CHECK(refused(1, {0, {0, 1, 2, 1}, never}));
  CHECK(refused(1, {0, {1}, never, {0, 1, 2, 1}}));
  CHECK(w.phase() == wave_phase::run);  // nobody can ask this worker
  const auto settled = w.step(arrived{1, ack_message{0, {1}, 0, {1}}}, g);
  REQUIRE(settled.size() == 1);
  CHECK(std::get<transmit>(settled[0]).message.body == control_body(go_message{}));
  CHECK(w.step(arrived{1, ack_message{0, {1}, 0, {1}}}, g).empty());  // came twice
}

TEST_CASE("wave: an ack that overtakes the needs it counts does not end discovery") {
  test_graph g;
  const auto r = g.add({});
  const auto leaf = g.add({});
  g.nodes[r].receive = peer_message{1, 5, the_context};
  g.sends[9] = {g.add({leaf}), 1};
  g.sends[10] = {g.add({leaf}), 1};
  wave w({the_context, 0, 1}, 0, 3);
  w.step(begin{{r}}, g);
  CHECK(w.step(arrived{1, ack_message{0, {1}, 1, {1}}}, g).empty());
  CHECK(w.step(arrived{1, ack_message{0, {1}, 1, {1}}}, g).empty());  // came twice
  // Another need than the one it counts.
  CHECK(w.step(arrived{1, need_message{1, graph_retention::release, {10}}}, g).size() == 1);
  CHECK(w.phase() == wave_phase::discover);
  const need_message need{0, graph_retention::release, {9}, need_reply::none};
  const auto out = w.step(arrived{1, need}, g);
  REQUIRE(out.size() == 2);
  CHECK(std::holds_alternative<complete>(out[0]));
  CHECK(std::get<transmit>(out[1]).message.body == control_body(go_message{}));
  CHECK(w.needed_nodes() == 4);
  CHECK(w.step(arrived{1, need}, g).empty());  // came twice
}

TEST_CASE("wave: nodes that no other message leads to run before discovery is over") {
  // Worker 0: the root needs what came from worker 1, and a node that it also sent to worker 2.
  history h(3);
  const auto leaf = h.op(0, {});
  const auto shared = h.op(0, {leaf});
  const auto used = h.transfer(2, {h.op(2, {h.transfer(0, {shared}, 2)})}, 1);
  const auto result = h.transfer(1, {h.op(1, {used})}, 0);
  const auto root = h.op(0, {result, shared});
  test_graph& g = h.workers[0];
  wave w({the_context, 0, 1}, 0, 3);
  const auto begun = w.step(begin{{root}}, g);
  REQUIRE(begun.size() == 2);
  CHECK(std::holds_alternative<launch>(begun[1]));
  CHECK(w.phase() == wave_phase::discover);
  CHECK(!w.may_grow(root));
  CHECK(!w.may_grow(result));
  CHECK(w.may_grow(shared));
  CHECK(w.may_grow(leaf));
  CHECK(w.dependencies()[shared] == 1);
  // Worker 1 has sent nothing else: it runs without go, and may be done before it is known here.
  CHECK(w.step(arrived{1, done_message{}}, g).empty());
  // A gradient that overtakes its need is kept for it.
  CHECK(w.step(arrived{2, grad_message{1, 1, {1}}}, g).empty());
  const auto asked = w.step(arrived{2, need_message{0, graph_retention::release, {1}}}, g);
  REQUIRE(asked.size() == 3);
  CHECK(std::holds_alternative<complete>(asked[0]));
  CHECK(std::get<start>(asked[1]).message == 1);
  CHECK(std::get<transmit>(asked[2]).message.body == control_body(ack_message{0, {0}}));
  CHECK(!w.may_grow(shared));
  CHECK(w.dependencies()[shared] == 2);
  CHECK(w.step(drained{}, g).empty());
  CHECK(w.step(arrived{1, ack_message{0, {1, 2}}}, g).empty());  // worker 2 is not done
  const auto over = w.step(arrived{2, done_message{}}, g);
  REQUIRE(!over.empty());
  CHECK(std::get<finished>(over.back()).participants == std::vector<worker_rank>{1, 2});
}

TEST_CASE("wave: a gradient whose need was lost with its sender keeps no pass") {
  test_graph g;
  g.sends[1] = {g.add({}), 1};
  wave w({the_context, 0, 1}, 2, 3);
  CHECK(w.step(arrived{1, grad_message{1, 1, {1}}}, g).empty());
  CHECK(w.phase() == wave_phase::idle);
  const auto out = w.step(lost{1}, g);
  REQUIRE(out.size() == 2);
  CHECK(std::get<transmit>(out[0]).to == 0);
  CHECK(std::get<aborted>(out[1]).origin == 1);
}

TEST_CASE("wave: the loss of a participant that is not yet known as one ends the pass") {
  // 0 asks 1, which asks 2. Both have done their part, and 2 is lost, before 0 hears anything.
  history h(3);
  const auto middle = h.op(1, {h.transfer(2, {h.op(2, {})}, 1)});
  const auto root = h.op(0, {h.transfer(1, {middle}, 0)});
  wave initiator({the_context, 0, 1}, 0, 3);
  wave asked({the_context, 0, 1}, 1, 3);
  const auto to_initiator = [](const outputs& out) {
    std::vector<control_body> said;
    for (const wave_output::any& o : out) {
      const auto* t = std::get_if<transmit>(&o);
      if (t && t->to == 0) said.push_back(t->message.body);
    }
    return said;
  };
  const auto begun = initiator.step(begin{{root}}, h.workers[0]);
  REQUIRE(std::holds_alternative<transmit>(begun.at(0)));
  const auto need = std::get<transmit>(begun[0]).message.body;
  asked.step(arrived{0, need}, h.workers[1]);
  const auto acks = to_initiator(asked.step(arrived{2, ack_message{0, {2}}}, h.workers[1]));
  REQUIRE(acks.size() == 1);
  REQUIRE(std::holds_alternative<ack_message>(acks[0]));
  const auto done = to_initiator(asked.step(drained{}, h.workers[1]));
  REQUIRE(done.size() == 1);
  CHECK(asked.step(lost{2}, h.workers[1]).empty());  // the initiator watches

  initiator.step(drained{}, h.workers[0]);
  SUBCASE("its ack before its done") {}
  SUBCASE("done before its ack") { initiator.step(arrived{1, done[0]}, h.workers[0]); }
  CHECK(initiator.step(lost{2}, h.workers[0]).empty());
  const auto out = initiator.step(arrived{1, acks[0]}, h.workers[0]);
  REQUIRE(initiator.phase() == wave_phase::aborted);
  const auto& why = std::get<aborted>(out.back());
  CHECK(why.origin == 2);
  CHECK(why.reason == abort_reason::lost);
  const auto told = to_initiator(out);
  CHECK(told.empty());
  const auto tells_it = [&](const wave_output::any& o) {
    const auto* t = std::get_if<transmit>(&o);
    return t && t->to == 1 && std::holds_alternative<abort_message>(t->message.body);
  };
  CHECK(std::count_if(out.begin(), out.end(), tells_it) == 1);
}

TEST_CASE("wave: the loss of a worker without part, before that is known, ends nothing") {
  history h(3);
  const auto root = h.op(0, {h.transfer(1, {h.op(1, {})}, 0)});
  test_graph& g = h.workers[0];
  wave w({the_context, 0, 1}, 0, 3);
  w.step(begin{{root}}, g);
  CHECK(w.step(lost{2}, g).empty());
  w.step(drained{}, g);
  CHECK(w.step(arrived{1, ack_message{0, {1}}}, g).empty());
  const auto over = w.step(arrived{1, done_message{}}, g);
  REQUIRE(!over.empty());
  CHECK(std::get<finished>(over.back()).participants == std::vector<worker_rank>{1});
}

TEST_CASE("wave: a done from a worker without part is refused once that is known") {
  history h(3);
  const auto root = h.op(0, {h.transfer(1, {h.op(1, {})}, 0)});
  test_graph& g = h.workers[0];
  wave w({the_context, 0, 1}, 0, 3);
  w.step(begin{{root}}, g);
  CHECK(w.step(arrived{2, done_message{}}, g).empty());
  const auto out = w.step(arrived{1, ack_message{0, {1}}}, g);
  REQUIRE(out.size() == 1);
  CHECK(std::get<violation>(out[0]).from == 2);
  CHECK(w.step(drained{}, g).empty());
  CHECK(!w.step(arrived{1, done_message{}}, g).empty());
  CHECK(w.over());
}

TEST_CASE("wave: cancelled by the caller, the participants drop the pass") {
  history h(2);
  const auto p = h.op(1, {});
  const auto loss = h.op(0, {h.transfer(1, {p}, 0)});
  test_graph& g = h.workers[0];
  wave w({the_context, 0, 1}, 0, 2);
  w.step(begin{{loss}}, g);
  const auto out = w.step(failed{abort_reason::cancelled, "deadline"}, g);
  REQUIRE(out.size() == 2);
  CHECK(std::get<transmit>(out[0]).message.body ==
        control_body(abort_message{0, abort_reason::cancelled, "deadline"}));
  CHECK(std::get<aborted>(out[1]).reason == abort_reason::cancelled);
  CHECK(w.over());
  CHECK(w.step(arrived{1, done_message{}}, g).empty());
}

TEST_CASE("messages: every kind survives its bytes, and no truncation or addition does") {
  const pass_id pass{0x0102030405060708, 9, 10};
  grad_message grad{77, 11, {0, 0}};
  grad.set(0);
  grad.set(10);
  CHECK(grad.count() == 2);
  CHECK(!grad.has(9));
  grad_message opening = grad;
  opening.opens = pass_opening{
      {graph_retention::retain, gradient_graph::create, leaf_gradients::inputs}, 0x01020304};
  const std::vector<control_body> bodies{need_message{3, graph_retention::retain, {1, ~0ULL, 5}},
                                         need_message{},
                                         need_message{0, {}, {2}, need_reply::none},
                                         ack_message{4, {0, 7}, 9},
                                         ack_message{4, {0, 7}, 9, {7}},
                                         go_message{},
                                         grad,
                                         opening,
                                         done_message{},
                                         done_message{{0, 7}},
                                         abort_message{2, abort_reason::lost, "worker 2 was lost"},
                                         end_message{},
                                         which_message{},
                                         waits_message{"message 3"}};
  for (const auto& body : bodies) {
    const control message{pass, body};
    auto bytes = encode(message);
    const auto back = decode(bytes);
    REQUIRE(back.has_value());
    CHECK(*back == message);
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      CHECK(!decode(std::span(bytes).first(n)).has_value());
    }
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      auto flipped = bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      const auto read = decode(flipped);
      if (read) CHECK((encode(*read) == flipped));
    }
    bytes.push_back(std::byte{0});
    CHECK(!decode(bytes).has_value());
  }
}

TEST_CASE("messages: counts beyond the bytes, unknown values and long texts are refused") {
  auto bytes = encode({{1, 2, 3}, need_message{0, graph_retention::release, {1}}});
  for (const std::size_t at : {0U, 21U, 22U, 23U, 24U}) {  // kind, settings, reply
    auto bad = bytes;
    bad[at] = std::byte{9};
    CHECK(!decode(bad).has_value());
  }
  for (std::size_t i = 25; i < 29; ++i) bytes[i] = std::byte{0xFF};
  CHECK(!decode(bytes).has_value());
  CHECK(!decode(encode({{1, 2, 3}, grad_message{1, 3, {0x08}}})).has_value());
  // No more memory than the bytes pay for.
  const auto wide =
      decode(encode({{1, 2, 3}, grad_message{1, 8000, std::vector<std::uint8_t>(1000)}}));
  REQUIRE(wide);
  CHECK(std::get<grad_message>(wide->body).present.capacity() == 1000);

  const std::string text(max_abort_text + 1, 'x');
  const auto cut = decode(encode({{1, 2, 3}, abort_message{0, abort_reason::failed, text}}));
  REQUIRE(cut.has_value());
  CHECK(std::get<abort_message>(cut->body).text.size() == max_abort_text);
}

TEST_CASE("ended_passes: remembers exactly what was added, in merged intervals") {
  ended_passes ended(3);
  std::set<std::uint32_t> model;
  for (const std::uint32_t n : {5U, 7U, 6U, 1U, 2U, 0U, 100U, 4U, 3U}) {
    ended.add({1, 0, n});
    model.insert(n);
    for (std::uint32_t i = 0; i < 110; ++i) CHECK(ended.contains({1, 0, i}) == model.contains(i));
  }
  CHECK(!ended.contains({1, 1, 5}));
  ended.add({1, 0, 0xFFFFFFFFU});
  CHECK(ended.intervals(0) == 3);
  CHECK(!ended.contains({1, 0, 50}));
  ended.add({1, 0, 200});  // a fourth interval: the oldest gap counts as ended
  CHECK(ended.intervals(0) == 3);
  CHECK(ended.contains({1, 0, 50}));
  CHECK(ended.contains({1, 0, 200}));
  CHECK(!ended.contains({1, 0, 150}));
}

TEST_CASE("ended_passes: of very many passes every second comes here, and no link suffers") {
  ended_passes ended;
  for (std::uint32_t n = 1; n < 40000; n += 2) {
    const pass_id pass{1, 0, n};
    const control need{pass, need_message{0, graph_retention::release, {1}}};
    REQUIRE(ended.admit(need, 1) == admission::fresh);
    ended.add(pass);
    REQUIRE(ended.contains(pass));
    // An abort of a pass that was never heard of here, as it crosses.
    REQUIRE(ended.admit({{1, 0, n + 1}, abort_message{}}, 1) == admission::stale);
  }
  for (std::uint32_t n = 100001; n < 140000; n += 2) ended.add({1, 0, n});
  CHECK(ended.intervals(0) == 4096);
}

/// Counts how much of it is looked at.
struct counting_graph : test_graph {
  std::size_t visits = 0;
  template <class F>
  void next(node_index n, F&& visit) {
    ++visits;
    test_graph::next(n, std::forward<F>(visit));
  }
  template <class F>
  void each_send(F&& meet) {
    visits += sends.size();
    test_graph::each_send(std::forward<F>(meet));
  }
};

TEST_CASE("wave: a pass costs as much as its own graph, however much its context has recorded") {
  // One worker's context with many messages, each behind a long chain, and a small pass.
  const auto nodes_met = [](std::uint32_t messages, std::uint32_t chain) {
    counting_graph g;
    for (std::uint32_t m = 1; m <= messages; ++m) {
      node_index at = g.add({});
      for (std::uint32_t i = 0; i < chain; ++i) at = g.add({at});
      g.sends[m] = {at, 1};
    }
    const auto received = g.add({});
    g.nodes[received].receive = peer_message{1, 5, the_context};
    const auto root = g.add({received});
    wave w({the_context, 0, 1}, 0, 2);
    const auto out = w.step(begin{{root}}, g);
    CHECK(std::holds_alternative<transmit>(out.at(0)));
    return g.visits;
  };
  CHECK(nodes_met(1, 10) <= 20);
  CHECK(nodes_met(10000, 1) <= 1000);
  CHECK(nodes_met(100, 10000) <= 1000);
}

TEST_CASE("wave: a tensor of another context, or of none, ends the pass where it is met") {
  for (const peer_message from : {peer_message{1, 5, 8}, peer_message{1, 0, 0},
                                  peer_message{0, 5, 8}, peer_message{0, 0, 0}}) {
    test_graph g;
    const auto received = g.add({});
    g.nodes[received].receive = from;
    const auto root = g.add({received});
    g.sends[5] = {g.add({}), from.peer};
    wave w({the_context, 0, 1}, 0, 2);
    const auto out = w.step(begin{{root}}, g);
    REQUIRE(out.size() == 1);
    CHECK(std::get<aborted>(out[0]).reason == abort_reason::misused);
    CHECK(w.over());
  }
  // Elsewhere than at the initiator: that one is told.
  test_graph g;
  const auto received = g.add({});
  g.nodes[received].receive = peer_message{2, 5, 8};
  g.sends[1] = {g.add({received}), 0};
  wave w({the_context, 0, 1}, 1, 3);
  const auto out = w.step(arrived{0, need_message{0, graph_retention::release, {1}}}, g);
  REQUIRE(out.size() == 2);
  const auto& told = std::get<transmit>(out[0]);
  CHECK(told.to == 0);
  CHECK(std::get<abort_message>(told.message.body).reason == abort_reason::misused);
}

TEST_CASE("ended_passes: a late message never revives a pass") {
  ended_passes ended;
  const pass_id pass{1, 0, 4};
  const control need{pass, need_message{0, graph_retention::release, {1}}};
  CHECK(ended.admit(need, 1) == admission::fresh);
  CHECK(ended.admit(need, 0) == admission::refuse);  // one's own pass, which never was
  CHECK(ended.admit({pass, grad_message{}}, 1) == admission::fresh);  // it overtook the need
  CHECK(ended.admit({pass, go_message{}}, 1) == admission::refuse);
  CHECK(ended.admit({pass, abort_message{}}, 1) == admission::stale);
  CHECK(ended.admit(need, 1) == admission::stale);
  CHECK(ended.admit({pass, go_message{}}, 1) == admission::stale);
}

TEST_CASE("ended_passes: who is lied to about a pass is not to blame for what it then sends") {
  const pass_id mine{1, 0, 4};    // worker 0 judges
  const pass_id theirs{1, 2, 4};  // of who sends it
  const pass_id others{1, 1, 4};
  const auto judge = [](const pass_id& pass, control_body body) {
    return blame_for({pass, std::move(body)}, 2, 0);
  };
  for (const pass_id& pass : {mine, theirs, others}) {
    CHECK(judge(pass, need_message{0, graph_retention::release, {1}}) == blame::somebody);
    CHECK(judge(pass, grad_message{}) == blame::somebody);
    CHECK(judge(pass, abort_message{}) == blame::somebody);
    CHECK(judge(pass, ack_message{}) == blame::sender);
    CHECK(judge(pass, done_message{}) == (pass == mine ? blame::somebody : blame::sender));
    CHECK(judge(pass, go_message{}) == (pass == theirs ? blame::somebody : blame::sender));
    CHECK(judge(pass, end_message{}) == (pass == theirs ? blame::somebody : blame::sender));
  }
}

TEST_CASE("wave: a worker that a third drew into the pass is not accused") {
  const auto accused = [](const outputs& out) {
    REQUIRE(out.size() == 1);
    REQUIRE(std::holds_alternative<violation>(out[0]));
    return std::get<violation>(out[0]).on;
  };
  {
    asked a;  // worker 0 asked; worker 2 heard of the pass from somebody
    const need_message other{0, graph_retention::retain, {2}};
    CHECK(accused(a.w.step(arrived{2, other}, a.g)) == blame::somebody);
    CHECK(accused(a.w.step(arrived{2, go_message{}}, a.g)) == blame::sender);
    CHECK(accused(a.w.step(arrived{2, done_message{}}, a.g)) == blame::sender);
    CHECK(accused(a.w.step(arrived{2, grad_message{1, 0, {}}}, a.g)) == blame::sender);
    a.w.step(arrived{0, go_message{}}, a.g);
    const need_message late{0, graph_retention::release, {2}};
    CHECK(accused(a.w.step(arrived{2, late}, a.g)) == blame::somebody);
    CHECK(accused(a.w.step(arrived{2, grad_message{2, 0, {}}}, a.g)) == blame::somebody);
  }
  history h(3);
  const auto root = h.op(0, {h.transfer(1, {h.op(1, {})}, 0)});
  wave w({the_context, 0, 1}, 0, 3);
  w.step(begin{{root}}, h.workers[0]);
  w.step(arrived{1, ack_message{0, {1}}}, h.workers[0]);
  CHECK(accused(w.step(arrived{2, done_message{}}, h.workers[0])) == blame::somebody);
}
