// SPDX-License-Identifier: BSL-1.0
// What a call costs beside many that wait: deadlines and cancellation stay flat.
#include "rows.hpp"
#include "samples.hpp"
#include "weft_pair.hpp"

#include <asio.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace bench {
namespace served {

asio::awaitable<void> wait_for_ever() {
  const auto never = weft::make_intrusive<weft::event>();
  co_await weft::event::async_wait(never, asio::use_awaitable);
}
asio::awaitable<void> nothing() { co_return; }

}  // namespace served

namespace {

/// So many calls are started with deadlines in random order, and all begin at the callee; then all
/// are cancelled, and end there. "start" and "cancel" in microseconds per call.
template <std::size_t Calls>
asio::awaitable<void> waiting(weft::worker& me, figures& out) {
  constexpr std::size_t batch = 500;
  auto callee = me.peer(callee_rank);
  std::minstd_rand random(1);
  std::uniform_int_distribution<int> ms(30'000, 60'000);
  std::vector<weft::future<void>> calls;
  calls.reserve(Calls);
  pace started(std::chrono::milliseconds(600));
  pace cancelled(std::chrono::milliseconds(600));
  while (started.more()) {
    started.begin();
    while (calls.size() < Calls) {
      const std::size_t until = std::min(Calls, calls.size() + batch);
      while (calls.size() < until) {
        calls.push_back(callee.start<&served::wait_for_ever>(
            weft::within(std::chrono::milliseconds(ms(random)))));
      }
      co_await callee.call<&served::nothing>();  // behind them, so they wait there now
    }
    started.end();
    static_cast<void>(cancelled.more());
    cancelled.begin();
    while (!calls.empty()) {
      for (std::size_t i = 0; i < batch && !calls.empty(); ++i) calls.pop_back();
      co_await callee.call<&served::nothing>();
    }
    cancelled.end();
  }
  constexpr double each = 1.0 / static_cast<double>(Calls);
  out = {{"start", started.latency().at("p50") * each},
         {"cancel", cancelled.latency().at("p50") * each}};
}

}  // namespace

void add_waiting_rows(std::vector<row>& rows) {
  constexpr auto one = placement::one_core;
  const auto few = weft_run("call.waiting 1k", link_kind::tcp, one, by_default, waiting<1'000>);
  const auto some = weft_run("call.waiting 10k", link_kind::tcp, one, by_default, waiting<10'000>);
  const auto many =
      weft_run("call.waiting 100k", link_kind::tcp, one, by_default, waiting<100'000>);
  for (const std::string figure : {"start", "cancel"}) {
    rows.push_back(
        {"call.waiting10k." + figure, "µs", {{"weft", some, figure}, {"1k waiting", few, figure}}});
    rows.push_back({"call.waiting100k." + figure,
                    "µs",
                    {{"weft", many, figure}, {"1k waiting", few, figure}}});
  }
}

}  // namespace bench
