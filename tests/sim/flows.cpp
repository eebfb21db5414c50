// SPDX-License-Identifier: BSL-1.0
// A program of random streams and group calls for simulated worlds, and what must hold of them.
#include <weft/core/sleep_for.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/rref/group_calls.hpp>
#include <weft/rref/stream.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <sim/parcel.hpp>
#include <sim/play.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::testing {

namespace flow_program {

using namespace std::chrono_literals;

/// What is known of one stream: planned, and seen at the function.
struct seen_flow {
  std::uint64_t items = 0;
  bool throws = false;
  int ran = 0;
  std::uint64_t moved = 0;  // written, or read
  bool left = false;        // by its reader, before the end
  bool returned = false;
  bool both_ways = false;
};
/// ... of one call to many.
struct seen_group {
  std::uint32_t throws_at = ~0u;
  std::size_t ballast = 0;
  bool slow = false;
  std::vector<int> ran;
};
struct flow_witness {
  explicit flow_witness(witness& of) : all(of) { current = this; }
  flow_witness(const flow_witness&) = delete;
  flow_witness& operator=(const flow_witness&) = delete;
  ~flow_witness() { current = nullptr; }

  witness& all;
  std::deque<seen_flow> flows;
  std::deque<seen_group> groups;
  std::uint64_t items = 0, ended = 0, broken = 0, results = 0, errors = 0;
  static thread_local flow_witness* current;
};
thread_local flow_witness* flow_witness::current = nullptr;

flow_witness& seen() { return *flow_witness::current; }
void complain(const std::string& what) { seen().all.complain(what); }
std::uint64_t item(std::uint64_t id, std::uint64_t i) { return id << 32 | i; }
asio::awaitable<void> some_time(worker& me) {
  if (draw(6) == 5) co_await sleep_for(me, draw_duration() / 16);
}

// ── streams ──

asio::awaitable<void> writes(worker& me, std::uint64_t id, sink<parcel> out) {
  const inside_now lives;
  seen_flow& f = seen().flows[id];
  if (++f.ran > 1) complain("a function of a stream ran twice");
  if (draw(3) == 2) out.set_window(1 + draw(4));
  for (; f.moved < f.items; ++f.moved) {
    co_await some_time(me);
    co_await out.write(item(id, f.moved));
  }
  if (f.throws) throw std::runtime_error("planned");
  f.returned = true;
}
/// An item comes at a function.
void came(seen_flow& f, std::uint64_t id, const parcel& x) {
  if (x.number != item(id, f.moved)) complain("an item came out of order at a function");
  if (!x.whole) complain("an item came changed at a function");
  ++f.moved;
}
/// Tells each item twice back.
asio::awaitable<void> repeats_each(worker& me, std::uint64_t id, stream<parcel> in,
                                   sink<parcel> out) {
  const inside_now lives;
  seen_flow& f = seen().flows[id];
  if (++f.ran > 1) complain("a function of a stream ran twice");
  // bounded: by the writer
  while (const auto x = co_await in.next()) {
    came(f, id, *x);
    co_await some_time(me);
    co_await out.write(*x);
    co_await out.write(*x);
  }
  if (f.moved != f.items) complain("a stream ended before its end");
  if (f.throws) throw std::runtime_error("planned");
  f.returned = true;
}

/// Takes all, then works on.
asio::awaitable<void> takes_all(worker& me, std::uint64_t id, stream<parcel> in) {
  const inside_now lives;
  seen_flow& f = seen().flows[id];
  if (++f.ran > 1) complain("a function of a stream ran twice");
  // bounded: by the writer
  while (const auto x = co_await in.next()) {
    came(f, id, *x);
    co_await some_time(me);
  }
  if (f.moved != f.items) complain("a stream ended before its end");
  co_await some_time(me);
  if (f.throws) throw std::runtime_error("planned");
  f.returned = true;
}

/// What ends a stream before its end, and may.
void broke(const seen_flow& f, const error& why, bool limited) {
  ++seen().broken;
  witness& w = seen().all;
  if (w.world.faulty() || w.may_be_missed(why)) return;
  if (why == errc::remote_exception && (f.throws || f.left)) return;
  if (why == errc::cancelled) return;  // this was given up
  if (why == errc::timed_out && limited) return;
  complain("a stream broke, though nothing was wrong: " + why.message());
}

/// Reads until the end, or less. Of each item so many.
asio::awaitable<void> read(worker& me, std::uint64_t id, stream<parcel> in, std::uint64_t of_each,
                           bool limited) {
  const inside_now lives;
  seen_flow& f = seen().flows[id];
  const std::uint64_t most = draw(5) == 4 ? draw(static_cast<std::uint32_t>(f.items) + 1) : ~0ull;
  std::uint64_t n = 0;
  int in_vain = 0;
  struct leaves {
    seen_flow& of;
    bool early = true;
    ~leaves() { of.left = of.left || early; }
  } leaving{f};
  while (n < most) {
    error why;
    std::optional<parcel> x;
    const bool short_wait = draw(8) == 7;
    co_await some_time(me);
    try {
      x = short_wait ? co_await in.next(within(draw_duration() / 16)) : co_await in.next();
    } catch (const rpc_error& e) {
      why = e.error();
    }
    if (why == errc::timed_out && short_wait && ++in_vain < 20) continue;  // it goes on
    if (why) {
      const bool planned = why.message().find("planned") != std::string::npos;
      if (planned && (!f.throws || n != f.items * of_each)) {
        complain("the error of a function came before its items");
      }
      co_return broke(f, why, limited || short_wait);
    }
    if (!x) {
      ++seen().ended;
      if (!f.returned) complain("a stream ended, and its function did not");
      if (n != f.items * of_each) complain("a stream ended with too few items");
      leaving.early = false;
      co_return;
    }
    if (x->number != item(id, n / of_each)) complain("an item came out of order");
    if (!x->whole) complain("an item came changed");
    ++n;
    ++seen().items;
  }
}
asio::awaitable<void> write(worker& me, std::uint64_t id, sink<parcel> out, bool limited) {
  const inside_now lives;
  seen_flow& f = seen().flows[id];
  try {
    for (std::uint64_t i = 0; i < f.items; ++i) {
      co_await some_time(me);
      co_await out.write(item(id, i));
    }
    co_await out.finish();
    if (!f.both_ways && f.throws) complain("what a function that reads threw was lost");
    if (!f.both_ways && !f.returned) complain("finish ended before the function that reads");
  } catch (const rpc_error& e) {
    if (e.error() == errc::closed) co_return;  // its reader has left, or the function threw
    broke(f, e.error(), limited);
  }
}

asio::awaitable<void> some_stream(worker& me, std::uint32_t to, std::uint64_t id, bool both_ways) {
  const bool limited = draw(6) == 5;
  const within limit(limited ? duration(draw_duration()) : no_limit);
  seen().flows[id].both_ways = both_ways;
  if (!both_ways && draw(2) == 1) {
    auto [out] = co_await me.peer(to).open<&takes_all>(id, limit);
    co_return co_await write(me, id, std::move(out), limited);
  }
  if (!both_ways) {
    auto [in] = co_await me.peer(to).open<&writes>(id, limit);
    co_return co_await read(me, id, std::move(in), 1, limited);
  }
  auto [out, in] = co_await me.peer(to).open<&repeats_each>(id, limit);
  auto writing = me.spawn(write(me, id, std::move(out), limited));
  co_await read(me, id, std::move(in), 2, limited);
  if (draw(3) == 2) co_return;  // it is cancelled
  co_await std::move(writing);
}

// ── one function at many ──

asio::awaitable<parcel> noted(worker& me, std::uint64_t id, std::vector<std::uint64_t> ballast,
                              parcel extra) {
  const inside_now lives;
  seen_group& g = seen().groups[id];
  ++g.ran[me.rank()];
  if (ballast != std::vector<std::uint64_t>(g.ballast, id)) complain("arguments came changed");
  if (extra.number != id || !extra.whole) complain("a buffer of the arguments came changed");
  if (g.throws_at == me.rank()) throw std::runtime_error("planned");
  if (g.slow) co_await sleep_for(me, draw_duration());
  co_return parcel(id * 100 + me.rank());
}

asio::awaitable<void> some_group(worker& me, std::uint64_t id, bool tree) {
  const inside_now lives;
  witness& w = seen().all;
  seen_group& g = seen().groups[id];
  std::vector<peer> peers;
  std::vector<int> asked(me.world_size());
  for (std::uint32_t n = draw(2 * me.world_size() + 1); n > 0; --n) {
    peers.push_back(me.peer(draw(me.world_size())));
    ++asked[peers.back().rank()];
  }
  const bool limited = draw(5) == 4;
  const within limit(limited ? duration(draw_duration()) : me.settings().call_deadline);
  const std::vector<std::uint64_t> ballast(g.ballast, id);
  const auto got =
      tree ? co_await broadcast<&noted>(peers, id, ballast, parcel(id), limit, as_expected)
           : co_await call_all<&noted>(peers, id, ballast, parcel(id), limit, as_expected);
  if (got.size() != peers.size()) co_return complain("a group call has too few results");
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::uint32_t rank = peers[i].rank();
    if (g.ran[rank] > asked[rank]) complain("a group call ran twice");
    if (got[i]) {
      ++seen().results;
      if (got[i]->number != id * 100 + rank || !got[i]->whole)
        complain("a group call has another's result");
      if (g.ran[rank] == 0) complain("a group call has a result, and did not run");
      continue;
    }
    ++seen().errors;
    const error& why = got[i].error();
    if (w.world.faulty() || w.may_be_missed(why)) continue;
    if (why == errc::remote_exception && g.throws_at == rank) continue;
    if (why == errc::timed_out && limited) continue;
    complain("a group call failed, though nothing was wrong: " + why.message());
  }
}

asio::awaitable<void> one_of_them(worker& me) {
  flow_witness& w = seen();
  const std::uint32_t kind = draw(4);
  if (kind < 2) {
    const std::uint64_t id = w.flows.size();
    seen_flow& f = w.flows.emplace_back();
    f.items = draw(4) == 3 ? draw(120) : draw(12);
    f.throws = draw(4) == 3;
    return some_stream(me, draw(me.world_size()), id, kind == 1);
  }
  const std::uint64_t id = w.groups.size();
  seen_group& g = w.groups.emplace_back();
  g.ran.resize(me.world_size());
  if (draw(3) == 2) g.throws_at = draw(me.world_size());
  if (draw(3) == 2) g.ballast = draw(2000);
  g.slow = draw(3) == 2;
  return some_group(me, id, kind == 2);
}

asio::awaitable<void> some_flows(worker& me, std::uint32_t steps) {
  const inside_now lives;
  witness& w = seen().all;
  try {
    std::vector<future<void>> at_once;
    for (std::uint32_t i = 0; i < steps; ++i) {
      if (draw(4) == 3) co_await sleep_for(me, draw_duration());
      switch (draw(4)) {
      case 0:  // given up
        static_cast<void>(me.spawn(one_of_them(me)));
        break;
      case 1:
        at_once.push_back(me.spawn(one_of_them(me)));
        break;
      default:
        co_await one_of_them(me);
      }
    }
    for (auto& f : at_once) co_await std::move(f);
    at_once.clear();
    w.mains_done.push_back(me.rank());
    const auto clean = [&](std::uint32_t r) {
      return w.world.worker_at(r).use<detail::broadcasts>().waiting() == 0 &&
             (w.world.faulty() || w.world.worker_at(r).use<rref_service>().idle());
    };
    // bounded: by the world's time
    while (!w.all_mains_done()) co_await sleep_for(me, 20ms);
    const time_point began = me.time().now();
    const auto has_time = [&] {
      duration most = me.settings().lost_after + 1s + 2 * me.settings().call_deadline + 4s;
      if (w.world.was_cut()) most += me.settings().stall_limit + 14s;
      return me.time().now() - began < most;
    };
    // bounded: by has_time
    while (has_time() && !w.all_living(clean)) co_await sleep_for(me, 20ms);
    if (!clean(me.rank())) {
      complain("worker " + std::to_string(me.rank()) + " is left with " +
               std::to_string(me.use<detail::broadcasts>().waiting()) + " broadcasts; " +
               me.use<rref_service>().describe());
    }
    if (w.is_quiet_at_the_end) {
      co_await sleep_for(me, 1s);
      co_await must_be_quiet(me);
    }
  } catch (const std::exception&) {
    w.mains_threw.push_back(me.rank());
    throw;
  }
}

class script_of_flows final : public script {
 public:
  explicit script_of_flows(witness& sees) : flows_(sees) {}
  asio::awaitable<void> main(worker& me) override { return some_flows(me, draw_steps(5)); }
  counts count() const override {
    return {{"streams", flows_.flows.size()},
            {"items", flows_.items},
            {"ends", flows_.ended},
            {"broken streams", flows_.broken},
            {"group calls", flows_.groups.size()},
            {"results", flows_.results},
            {"failed results", flows_.errors}};
  }

 private:
  flow_witness flows_;
};

}  // namespace flow_program

const program program::flows{"flows",
                             [] { return engine::services<rref_service, detail::broadcasts>(); },
                             [](witness& sees) -> std::unique_ptr<script> {
                               return std::make_unique<flow_program::script_of_flows>(sees);
                             }};

}  // namespace weft::testing
