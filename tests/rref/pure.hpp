// SPDX-License-Identifier: BSL-1.0
// Workers with references and nothing else: they need no libtorch, so that the sanitizers see all
// that they do.
#pragma once

#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/rref/service.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <rpc/cluster.hpp>
#include <rref/gate.hpp>
#include <rref/left.hpp>
#include <string>
#include <vector>

namespace weft::testing {

extern template class cluster_with<rref_service>;
using pure_cluster = cluster_with<rref_service>;
using pure_main = std::function<asio::awaitable<void>(pure_cluster&, worker&)>;

[[nodiscard]] inline rref_service& rrefs(pure_cluster& all, std::uint32_t rank) {
  return all.at(rank).use<rref_service>();
}
[[nodiscard]] inline std::uint64_t waiting(pure_cluster& all, std::uint32_t rank) {
  return rrefs(all, rank).counters().waiting;
}
/// What a code that was sent for says, or why it did not come.
[[nodiscard]] inline asio::awaitable<errc> code_or_failure(future<int> code) {
  try {
    co_return static_cast<errc>(co_await std::move(code));
  } catch (const rpc_error& e) {
    co_return static_cast<errc>(e.error().code().value());
  }
}

/// How far a creation may run ahead of others of its creator.
inline constexpr std::uint64_t window = rref_protocol::ledger_limits().creation_window;
/// An object that is made within the turn in which its request comes.
struct quick {
  using immediate_constructor = quick;
  int value;
  explicit quick(int v) : value(v) {}
  int get() { return value; }
};

/// Runs a test on worker 0 of `size`; checks that the run ends well and no reference is left. If
/// the test breaks a link of `cut_off`, the run goes on without that worker.
inline void run_pure(std::uint32_t size, over how, options o, const pure_main& main_,
                     std::uint32_t cut_off = 0) {
  o.compute_threads = 2;
  if (cut_off != 0) o.on_loss = loss_policy::go_on_without({cut_off % 2 == 0 ? "even" : "odd"});
  pure_cluster all(size, how, o);
  const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    co_await main_(all, me);
    if (cut_off != 0) CHECK(co_await eventually([&] { return left_behind(all, cut_off); }));
    co_await check_nothing_is_left(all);
  });
  for (std::size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r, " over ", name_of(how), ": ", ends[r].message());
    if (cut_off != 0 && r == cut_off) {
      CHECK(ends[r] == errc::worker_failed);
    } else {
      CHECK_FALSE(ends[r]);
    }
  }
}
inline void run_pure(std::uint32_t size, over how, unsigned io_threads, const pure_main& main_,
                     std::uint32_t cut_off = 0) {
  run_pure(size, how, with_io_threads(io_threads), main_, cut_off);
}
inline void pure_everywhere(std::uint32_t size, const pure_main& main_, std::uint32_t cut_off = 0) {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    run_pure(size, how, io_threads, main_, cut_off);
  }
}

}  // namespace weft::testing
