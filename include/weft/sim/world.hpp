// SPDX-License-Identifier: BSL-1.0
// A whole run in one thread and in virtual time, decided by one seed.
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

/// One thread. Everything of its workers happens inside `step`.
class world {
 public:
  using main_function = std::function<asio::awaitable<void>(worker&)>;

  world(std::uint64_t seed, settings how, engine::service_makers services = {});
  /// The same world by a record of its choices, which may be shorter or changed.
  world(std::uint64_t seed, settings how, record made, engine::service_makers services = {});
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world();

  /// Every worker begins with that main. Throws rpc_error: invalid_argument if there is no worker,
  /// or it was started before.
  void start(const main_function& main_);
  /// The next thing happens. False: nothing is left to happen, or every run has ended.
  bool step();
  /// Until every run has ended or `done` says so, and no longer than that, in virtual time, but for
  /// the handler that runs then. Returns whether it came to such an end; false also if nothing is
  /// left to happen, or has been started. In how many steps one lets it run makes no difference to
  /// what happens, but where memory lacks. Throws rpc_error: invalid_argument on another thread
  /// than that of `start`.
  bool run(duration most = std::chrono::hours(1), const std::function<bool()>& done = {});

  [[nodiscard]] bool over() const;
  [[nodiscard]] std::uint32_t size() const noexcept { return how_.workers; }
  /// Whatever takes a rank throws rpc_error: unknown_peer if there is none such, or not yet.
  [[nodiscard]] host& at(std::uint32_t rank) const { return *hosts_[known(rank)]; }
  /// Throws rpc_error also if it is no more: peer_died.
  [[nodiscard]] worker& worker_at(std::uint32_t rank) const;
  [[nodiscard]] network& wires() noexcept { return net_; }
  [[nodiscard]] time_point now() const noexcept { return time_.now(); }
  [[nodiscard]] choices& decide() noexcept { return choices_; }

  // What else may happen, by hand.

  /// `in_silence`: its machine goes with it, and nobody is told. From a handler: once that has
  /// ended, also if it is another worker's.
  void crash(std::uint32_t rank, bool in_silence = false);
  /// A process begins anew in the place of one that crashed, by the same main. It takes itself for
  /// one of the old group, which knows the one before: nothing that was meant for that reaches it,
  /// and the others refuse it. Throws rpc_error: invalid_argument if there is none that crashed.
  void restart(std::uint32_t rank);
  /// It runs nothing until then; what it is sent waits.
  void pause(std::uint32_t rank, duration how_long);
  /// Not of who was started anew.
  [[nodiscard]] bool crashed(std::uint32_t rank) const { return fates_[known(rank)].crashed; }
  /// Requires that it has.
  [[nodiscard]] time_point crashed_at(std::uint32_t rank) const {
    return fates_[known(rank)].crashed_at;
  }
  /// Whose handler runs, or whose process is being destroyed; size() if nobody's.
  [[nodiscard]] std::uint32_t runs_now() const noexcept { return runs_now_; }
  /// Whether a fault has come; a cut or a pause, by which workers can be lost to one another.
  [[nodiscard]] bool faulty() const noexcept { return faulty_ || shortage_.struck; }
  [[nodiscard]] bool was_cut() const noexcept { return was_cut_; }
  /// How its run ended; success also while it goes on.
  [[nodiscard]] error ended(std::uint32_t rank) const { return at(rank).ended().value_or(error()); }
  [[nodiscard]] bool failed(std::uint32_t rank) const { return static_cast<bool>(ended(rank)); }
  /// How long it has been paused in all.
  [[nodiscard]] duration paused(std::uint32_t rank) const;

  /// Of all that has happened: the same for the same seed, settings and program.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] const std::string& story() const noexcept { return story_; }
  /// A line of the story, for programs.
  void tell(std::uint32_t rank, std::string_view what, std::optional<std::uint64_t> number = {});
  /// Who has not ended, whose mains have not returned, and what they serve: after a time that
  /// should have been enough, they may wait for something that does not happen in virtual time.
  /// Empty: nobody.
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
  /// A process; what the others will know of it; its run.
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
