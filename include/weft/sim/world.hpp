// SPDX-License-Identifier: BSL-1.0
// A whole run in one thread and in virtual time. One seed decides all of it.
//
//   weft::sim::world w(seed, {.workers = 3});
//   w.start(main_);
//   w.run();                                    // until every worker's run has ended
//   if (!w.over()) std::cout << w.waits() << w.story();
#pragma once

#include <weft/engine/services/services.hpp>
#include <weft/sim/host.hpp>
#include <weft/sim/network.hpp>
#include <weft/sim/settings.hpp>
#include <weft/wire/detail/ask_for_memory.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::sim {

/// A simulated world: real workers; simulated sockets, clocks and threads. Only the thread of
/// `start` uses it. Its workers run only inside `step` and `run`.
class world {
 public:
  using main_function = std::function<asio::awaitable<void>(worker&)>;

  world(std::uint64_t seed, settings how, engine::service_makers services = {});
  /// The same world, from a record of its choices. The record may be shorter or changed.
  world(std::uint64_t seed, settings how, record made, engine::service_makers services = {});
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world();

  /// Every worker begins to run this main. Throws rpc_error: invalid_argument if the settings have
  /// no worker, or the world was started before.
  void start(const main_function& main_);
  /// One thing happens: a handler runs, or time passes. False: nothing is left to happen, every run
  /// has ended, or the world was not started. Throws as `run`.
  bool step();
  /// Lets virtual time pass until every run has ended, `done` returns true, or `most` is over. The
  /// handler that runs then still ends. True: every run has ended, or `done` returned true. False
  /// also if nothing is left to happen, or the world was not started. How you divide the time into
  /// calls makes no difference, except where memory is short. Throws rpc_error: invalid_argument on
  /// another thread than that of `start`.
  bool run(duration most = std::chrono::hours(1), const std::function<bool()>& done = {});

  [[nodiscard]] bool over() const;
  [[nodiscard]] std::uint32_t size() const noexcept { return how_.workers; }
  /// All members that take a rank, except `tell`, throw rpc_error: unknown_peer if the world has no
  /// such rank, or was not started.
  [[nodiscard]] host& at(std::uint32_t rank) const { return *hosts_[known(rank)]; }
  /// Throws rpc_error: peer_died, too, if the worker is gone.
  [[nodiscard]] worker& worker_at(std::uint32_t rank) const;
  [[nodiscard]] network& wires() noexcept { return net_; }
  [[nodiscard]] time_point now() const noexcept { return time_.now(); }
  [[nodiscard]] choices& decide() noexcept { return choices_; }

  // Faults by hand.

  /// The process crashes. `in_silence`: its machine vanishes, too, and nobody is told. If a handler
  /// calls it, also that of another worker, the process crashes when this handler has ended.
  void crash(std::uint32_t rank, bool in_silence = false);
  /// A new process takes the place of a crashed one, with the same main. It believes that it is in
  /// the old group. The others know only the old process: they refuse the new one, and messages for
  /// the old one do not reach it. Throws rpc_error: invalid_argument if the worker has not crashed.
  void restart(std::uint32_t rank);
  /// The worker runs nothing for so long; messages to it wait.
  void pause(std::uint32_t rank, duration how_long);
  /// Whether that worker has crashed; false again after `restart`.
  [[nodiscard]] bool crashed(std::uint32_t rank) const { return fates_[known(rank)].crashed; }
  /// Requires crashed(rank).
  [[nodiscard]] time_point crashed_at(std::uint32_t rank) const {
    return fates_[known(rank)].crashed_at;
  }
  /// The worker whose handler runs, or whose process is being destroyed; size() if there is none.
  [[nodiscard]] std::uint32_t runs_now() const noexcept { return runs_now_; }
  /// Whether a fault has come, by itself or by this class. Faults by hand of `wires()` don't count.
  [[nodiscard]] bool faulty() const noexcept { return faulty_ || shortage_.struck; }
  /// The same of resets, cuts and pauses, by which workers can lose each other.
  [[nodiscard]] bool was_cut() const noexcept { return was_cut_; }
  /// How the worker's run ended. Success while the run goes on, and for a crashed worker.
  [[nodiscard]] error ended(std::uint32_t rank) const { return at(rank).ended().value_or(error()); }
  [[nodiscard]] bool failed(std::uint32_t rank) const { return static_cast<bool>(ended(rank)); }
  /// How long the worker was paused in all.
  [[nodiscard]] duration paused(std::uint32_t rank) const;

  /// A number for all that happened: the same for the same seed, settings and program.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] const std::string& story() const noexcept { return story_; }
  /// Adds a line of the program's own to the story.
  void tell(std::uint32_t rank, std::string_view what, std::optional<std::uint64_t> number = {});
  /// The workers that have not ended, whether their mains have returned, and the functions that
  /// they serve. If the time should have been enough, they may wait for an event that does not
  /// happen in virtual time. Empty: all have ended.
  [[nodiscard]] std::string waits() const;

 private:
  struct fate {
    bool crashed = false;
    bool in_main = false;
    time_point crashed_at{};
    time_point paused_until{};
    duration paused{};
  };
  /// Which requests for memory of the handler that runs fail.
  struct shortage final : weft::detail::memory_decider {
    [[nodiscard]] bool refuses() noexcept override {
      if (before == 0 || --before > 0) return false;
      struck = true;
      if (more > 0) {
        --more;
        before = 1;
      }
      return true;
    }
    std::uint32_t before = 0;  // until one fails; 0: none will
    std::uint32_t more = 0;    // right behind it
    bool struck = false;
  };
  /// A fault comes, or a cut way heals.
  struct event final : moment {
    event(timeline& of, std::function<void()> what) : moment(of), then(std::move(what)) {}
    void comes() override { std::exchange(then, nullptr)(); }  // which may end this
    std::function<void()> then;
  };

  world(choices by, std::uint64_t seed, settings how, engine::service_makers services);
  /// That rank, if it is one.
  [[nodiscard]] std::uint32_t known(std::uint32_t rank) const;
  [[nodiscard]] engine::transport_set transports_at(host_id r);
  /// Makes a process; makes the others' entry for it; begins its run.
  [[nodiscard]] std::unique_ptr<host> make_host(host_id r);
  [[nodiscard]] member make_member(host_id r);
  void begin(host_id r);
  void after(duration d, std::function<void()> what);
  [[nodiscard]] bool step_by(time_point latest);
  [[nodiscard]] duration draw_part(duration of, std::int64_t divisor);
  void next_fault();
  void fault();
  void draw_shortage();
  bool run_handlers();
  void kill(std::uint32_t rank);
  void bury();
  void write(std::uint32_t rank, std::string_view what, std::optional<std::uint64_t> number);
  void note(std::uint64_t what) noexcept { hash_ = (hash_ ^ what) * 0x100000001b3u; }

  settings how_;
  engine::service_makers services_;
  choices choices_;
  random_source random_;  // for the workers' own
  timeline time_;
  network net_;
  std::vector<std::unique_ptr<event>> events_;
  std::vector<std::unique_ptr<host>> hosts_;
  std::vector<std::pair<host_id, std::uint32_t>> threads_;  // of all hosts
  std::uint32_t alive_ = 0;
  bool some_crashed_ = false;
  std::vector<fate> fates_;
  main_function main_;
  membership all_;
  std::uint64_t hash_ = 0xcbf29ce484222325u;
  std::uint64_t steps_ = 0;
  std::uint32_t runs_now_ = 0;
  std::optional<std::uint32_t> first_;  // whose turn it was when nothing was left to do just now
  const char* thread_ = nullptr;        // that of `start`, by an address in it
  static inline thread_local char here_ = 0;
  bool faulty_ = false, was_cut_ = false;
  shortage shortage_;
  std::string story_;
};

}  // namespace weft::sim

#include <weft/sim/impl/world.hpp>
