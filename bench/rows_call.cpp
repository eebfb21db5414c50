// SPDX-License-Identifier: BSL-1.0
#include "peers/raw.hpp"
#include "peers/tensorpipe.hpp"
#include "rows.hpp"
#include "samples.hpp"
#include "weft_pair.hpp"
#include <weft/engine/worker/worker.hpp>

#include <asio.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace bench {
namespace served {

asio::awaitable<std::string> echo(std::string text) { co_return text; }
weft::immediate<std::string> echo_immediate(std::string text) { return text; }
std::string echo_pool(std::string text) { return text; }
std::atomic<bool> stops{false};
weft::immediate<void> stop() {
  stops = true;
  return {};
}
asio::awaitable<void> compute() {
  stops = false;
  while (!stops) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (std::chrono::steady_clock::now() < until) {
    }
    co_await asio::post(asio::use_awaitable);
  }
}
asio::awaitable<void> keep_idle(weft::worker& me, std::uint64_t most) {
  static_cast<weft::engine::worker&>(me).requests().keep_idle(most);
  co_return;
}

}  // namespace served

namespace {

constexpr std::size_t message_bytes = 64;
constexpr std::size_t in_flight = 64;

template <auto F>
asio::awaitable<void> one_by_one(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  const std::string text(message_bytes, 'x');
  pace times(std::chrono::milliseconds(500));
  while (times.more()) {
    times.begin();
    const auto reply = co_await callee.template call<F>(text);
    times.end();
    if (reply.size() != text.size()) throw std::runtime_error("the echo has another size");
  }
  out = times.latency();
}

/// Calls that are answered in place, one each 5 ms, by a worker that computes in pieces of 50 ms.
asio::awaitable<void> beside_work(weft::worker& me, figures& out) {
  using namespace std::chrono_literals;
  auto callee = me.peer(callee_rank);
  const std::string text(message_bytes, 'x');
  asio::steady_timer timer(co_await asio::this_coro::executor);
  weft::future<void> work = callee.start<&served::compute>();
  pace times(2000ms);
  while (times.more()) {
    timer.expires_after(5ms);
    co_await timer.async_wait(asio::use_awaitable);
    times.begin();
    static_cast<void>(co_await callee.call<&served::echo_immediate>(text));
    times.end();
  }
  callee.post<&served::stop>();
  co_await std::move(work);
  out = times.latency();
}

struct flight_state {
  throughput count;
  std::size_t under_way = in_flight;
  bool stopping = false;
  std::exception_ptr failure;
};

asio::awaitable<void> keep_calling(weft::peer callee, flight_state& state) {
  const std::string text(message_bytes, 'x');
  while (!state.stopping) {
    co_await callee.call<&served::echo>(text);
    state.count.count();
  }
}

asio::awaitable<void> flight(weft::worker& me, figures& out) {
  const auto executor = co_await asio::this_coro::executor;
  flight_state state;
  for (std::size_t i = 0; i < in_flight; ++i) {
    asio::co_spawn(executor, keep_calling(me.peer(callee_rank), state),
                   [&state](std::exception_ptr e) {
                     if (e) state.failure = e;
                     --state.under_way;
                   });
  }
  asio::steady_timer timer(executor, std::chrono::milliseconds(300));
  co_await timer.async_wait(asio::use_awaitable);
  state.count.start();
  timer.expires_after(std::chrono::milliseconds(1000));
  co_await timer.async_wait(asio::use_awaitable);
  if (!state.failure) out = state.count.result();
  state.stopping = true;
  while (state.under_way > 0) {
    timer.expires_after(std::chrono::milliseconds(1));
    co_await timer.async_wait(asio::use_awaitable);
  }
  if (state.failure) std::rethrow_exception(state.failure);
}

/// The callee makes a coroutine for each request instead of giving it to one that waits.
template <auto Job>
asio::awaitable<void> without_reuse(weft::worker& me, figures& out) {
  co_await me.peer(callee_rank).template call<&served::keep_idle>(std::uint64_t{0});
  co_await Job(me, out);
}

/// One coroutine that always has so many calls started, and takes them in turn.
asio::awaitable<void> window(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  const std::string text(message_bytes, 'x');
  std::vector<weft::future<std::string>> started;
  for (std::size_t i = 0; i < in_flight; ++i) started.push_back(callee.start<&served::echo>(text));
  throughput count;
  const auto run = [&](std::chrono::milliseconds limit) -> asio::awaitable<void> {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < until) {
      for (auto& next : started) {
        static_cast<void>(co_await std::move(next));
        count.count();
        next = callee.start<&served::echo>(text);
      }
    }
  };
  co_await run(std::chrono::milliseconds(300));
  count.start();
  co_await run(std::chrono::milliseconds(1000));
  out = count.result();
  for (auto& last : started) static_cast<void>(co_await std::move(last));
}

/// The peers that there are for a medium; each is run once a round for all rows that show it.
struct peer_runs {
  run_ptr raw;
  run_ptr tensorpipe;
  run_ptr tensorpipe_many;

  std::vector<subject> one_by_one(const std::string& figure) const {
    std::vector<subject> result;
    if (raw) result.push_back({"raw", raw, figure});
    if (tensorpipe) result.push_back({"tensorpipe", tensorpipe, figure});
    return result;
  }
  std::vector<subject> many(const std::string& figure) const {
    if (!tensorpipe_many) return {};
    return {{"tensorpipe", tensorpipe_many, figure}};
  }
};

peer_runs peers_of(link_kind over, placement where, const std::string& suffix) {
  peer_runs result;
  if (over == link_kind::inproc) return result;
  const auto medium = over == link_kind::tcp ? raw::medium::tcp : raw::medium::unix_socket;
  result.raw = make_run({.name = "raw " + name_of(over) + suffix, .where = where, .measure = [=] {
                           return raw::echo(medium, message_bytes, where);
                         }});
  if (over != link_kind::tcp) return result;
  result.tensorpipe =
      make_run({.name = "tensorpipe 64 bytes" + suffix, .where = where, .measure = [=] {
                  return tensorpipe::echo_small(where);
                }});
  result.tensorpipe_many =
      make_run({.name = "tensorpipe 64 in flight" + suffix, .where = where, .measure = [=] {
                  return tensorpipe::echo_many(in_flight, where);
                }});
  return result;
}

void add(std::vector<row>& rows, const std::string& name, const std::string& unit,
         const run_ptr& weft, const std::string& figure, std::vector<subject> peers) {
  peers.insert(peers.begin(), subject{"weft", weft, figure});
  rows.push_back({name, unit, std::move(peers)});
}

}  // namespace

void add_call_rows(std::vector<row>& rows) {
  constexpr auto one = placement::one_core;
  for (const auto over : {link_kind::inproc, link_kind::unix_socket, link_kind::tcp}) {
    const auto x = name_of(over);
    const auto peers = peers_of(over, one, "");
    const auto empty =
        weft_run("call.empty." + x, over, one, by_default, one_by_one<&served::echo>);
    const auto immediate =
        weft_run("call.immediate." + x, over, one, by_default, one_by_one<&served::echo_immediate>);
    const auto pool =
        weft_run("call.pool." + x, over, one, by_default, one_by_one<&served::echo_pool>);
    const auto many = weft_run("call.flight64." + x, over, one, by_default, flight);
    for (const std::string figure : {"p50", "p99"}) {
      add(rows, "call.empty." + x + "." + figure, "µs", empty, figure, peers.one_by_one(figure));
    }
    add(rows, "call.immediate." + x + ".p50", "µs", immediate, "p50", peers.one_by_one("p50"));
    add(rows, "call.pool." + x + ".p50", "µs", pool, "p50", peers.one_by_one("p50"));
    add(rows, "call.flight64." + x + ".rate", "calls/s", many, "rate", peers.many("rate"));
    add(rows, "call.flight64." + x + ".cpu", "µs", many, "cpu", peers.many("cpu"));
    const auto started = weft_run("call.window64." + x, over, one, by_default, window);
    add(rows, "call.window64.start." + x + ".rate", "calls/s", started, "rate",
        {{"call", many, "rate"}});
    if (over == link_kind::inproc) {  // little else, so that the difference shows
      const auto fresh = weft_run("call.reuse.inproc fresh", over, one, by_default,
                                  without_reuse<one_by_one<&served::echo>>);
      const auto fresh_many = weft_run("call.reuse.flight64.inproc fresh", over, one, by_default,
                                       without_reuse<flight>);
      add(rows, "call.reuse.inproc.p50", "µs", empty, "p50", {{"fresh", fresh, "p50"}});
      add(rows, "call.reuse.flight64.inproc.rate", "calls/s", many, "rate",
          {{"fresh", fresh_many, "rate"}});
    }
    if (over != link_kind::tcp) continue;

    for (const unsigned n : {0u, 1u}) {  // with that option
      const std::string io = "io" + std::to_string(n);
      const auto empty_io =
          weft_run("call.empty.tcp " + io, over, one, n, one_by_one<&served::echo>);
      const auto many_io = weft_run("call.flight64.tcp " + io, over, one, n, flight);
      for (const std::string figure : {"p50", "p99"}) {
        add(rows, "call.empty.tcp." + figure + "." + io, "µs", empty_io, figure,
            peers.one_by_one(figure));
      }
      auto best = peers.many("rate");
      best.push_back({"default", many, "rate"});
      add(rows, "call.flight64.tcp.rate." + io, "calls/s", many_io, "rate", best);
      add(rows, "call.window64.start.tcp.rate." + io, "calls/s",
          weft_run("call.window64.tcp " + io, over, one, n, window), "rate",
          {{"call", many_io, "rate"}});
      add(rows, "call.flight64.tcp.cpu." + io, "µs", many_io, "cpu", peers.many("cpu"));
    }
    const auto beside = weft_run("call.busy.tcp", over, one, by_default, beside_work);
    const auto beside_io = weft_run("call.busy.tcp io1", over, one, 1, beside_work);
    add(rows, "call.busy.tcp.p99", "µs", beside, "p99", {{"io1", beside_io, "p99"}});

    constexpr auto each = placement::core_each;
    add(rows, "call.empty.tcp.p50.2c", "µs",
        weft_run("call.empty.tcp 2c", over, each, by_default, one_by_one<&served::echo>), "p50",
        peers_of(over, each, " 2c").one_by_one("p50"));
  }
}

}  // namespace bench
