// SPDX-License-Identifier: BSL-1.0
// Memory lacks wherever a message is recorded, a backward pass runs or an optimizer steps, in
// libtorch as in weft: the caller is told, nobody waits, nothing is kept, and the next one is
// right.
//
// Covered: the caller's thread, from the call on until it waits, also if there is none at all from
// some point on; the threads that run nodes and steps, for a whole pass or step; and each frame and
// section, from the link on until the service has taken it. Not covered: what Asio does on a thread
// that reads, between those; and the functions of libtorch that end the process where memory lacks
// (`spared`).
#include "points.hpp"
#include <weft/autograd/context.hpp>
#include <weft/engine/services/autograd_service.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/engine/services/services.hpp>
#include <weft/optim/distributed.hpp>
#include <weft/rref/peer.hpp>
#include <weft/wire/detail/tensor_table.hpp>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <rpc/cluster_bodies.hpp>
#include <rref/gate.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <unwind.h>

namespace poor_gradients {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::autograd_service;
using weft::errc;
using weft::worker;
using weft::autograd::context;

/// Whether the caller is called by one of libtorch's functions that must not throw and allocate all
/// the same: the destruction of nodes.
bool spared() {
  static void* const none[] = {dlsym(RTLD_DEFAULT, "_ZN5torch8autograd10deleteNodeEPNS0_4NodeE")};
  bool found = false;
  _Unwind_Backtrace(
      [](_Unwind_Context* at, void* out) {
        void* const function =
            _Unwind_FindEnclosingFunction(reinterpret_cast<void*>(_Unwind_GetIP(at) - 1));
        for (void* one : none) {
          if (one && function == one) *static_cast<bool*>(out) = true;
        }
        return *static_cast<bool*>(out) ? _URC_END_OF_STACK : _URC_NO_REASON;
      },
      &found);
  return found;
}

/// What comes over a link, at the point where memory is to lack for it. Any thread.
struct entry {
  static inline std::atomic<int> rank{-1};  // of the worker that it comes to; -1: of none
  static inline std::atomic<int> left{0};   // until it comes
  static inline std::atomic<long> nth{0}, further{0};
  static inline std::atomic<bool> met{false}, struck{false}, inside{false};

  static void arm(int at, int which, long n, long more) {
    left = which;
    nth = n;
    further = more;
    met = struck = false;
    rank = at;
  }
  static void disarm() { rank = -1; }

  /// Around one of them.
  class here {
   public:
    explicit here(const worker& me) {
      mine_ = rank == static_cast<int>(me.rank()) && left.fetch_sub(1) == 1;
      if (!mine_) return;
      met = inside = true;
      shortage::arm(nth, further);
    }
    here(const here&) = delete;
    here& operator=(const here&) = delete;
    ~here() {
      if (!mine_) return;
      if (shortage::struck()) struck = true;
      shortage::disarm();
      inside = false;
    }

   private:
    bool mine_ = false;
  };
};

/// The service as it is; what links give it can be given while memory lacks.
class poor_service final : public autograd_service {
 public:
  explicit poor_service(weft::engine::worker& me) : me_(me), all_(me) {}

  [[nodiscard]] context_ptr open() override { return all_.open(); }
  void release(const context_ptr& state) override { all_.release(state); }
  [[nodiscard]] asio::awaitable<void> backward(context_ptr state, std::vector<at::Tensor> roots,
                                               std::vector<at::Tensor> gradients,
                                               weft::autograd::graph_retention retention,
                                               std::optional<weft::duration> limit) override {
    return all_.backward(std::move(state), std::move(roots), std::move(gradients), retention,
                         limit);
  }
  [[nodiscard]] asio::awaitable<weft::autograd::gradient_map>
  gradients(context_ptr state) override {
    return all_.gradients(std::move(state));
  }
  [[nodiscard]] weft::error ended(const context_ptr& state) const override {
    return all_.ended(state);
  }
  [[nodiscard]] std::optional<weft::autograd::gradient_map>
  gradients_now(const context_ptr& state) const override {
    return all_.gradients_now(state);
  }
  [[nodiscard]] std::size_t contexts() const override { return all_.contexts(); }
  [[nodiscard]] std::size_t passes() const override { return all_.passes(); }
  [[nodiscard]] std::uint64_t frames() const noexcept override { return all_.frames(); }
  [[nodiscard]] bool owns(weft::frame_kind kind) const noexcept override { return all_.owns(kind); }
  void attach(weft::link& to, const weft::frame_header& h, weft::message& m) override {
    all_.attach(to, h, m);
  }
  void dropped(weft::link& to, weft::message_extensions& record) override {
    all_.dropped(to, record);
  }
  weft::expected<void> arrive(weft::link& from, weft::incoming_message& m) override {
    const entry::here now(me_);
    return all_.arrive(from, m);
  }
  weft::expected<void> frame(weft::link& from, weft::incoming_message& m) override {
    const entry::here now(me_);
    return all_.frame(from, m);
  }
  void down(weft::link& peer, const weft::error& reason) override { all_.down(peer, reason); }
  void fail_waits(const weft::error& why) override { all_.fail_waits(why); }
  [[nodiscard]] std::optional<std::string> in_words(const std::exception& e) const override {
    return all_.in_words(e);
  }

 private:
  worker& me_;
  weft::engine::autograd_service all_;
};

using poor_cluster = cluster_with<weft::rref_service, poor_service>;

int add(int a, int b) { return a + b; }
at::Tensor twice(const at::Tensor& a) { return a * 2; }
at::Tensor parameter() { return at::ones({3}).set_requires_grad(true); }
at::Tensor scaled(at::Tensor& by, const at::Tensor& a) { return by * a; }
at::Tensor look(at::Tensor& p) { return p.detach().clone(); }
/// The pool's only thread at this worker.
std::uint64_t pool_thread() { return reinterpret_cast<std::uint64_t>(&thread_memory::here()); }

at::Tensor leaf() { return at::arange(3, at::kFloat).add(1).set_requires_grad(true); }
bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && at::equal(a, b);
}

/// The sentence of a pass that was given up names what was thrown.
std::string not_told(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const weft::rpc_error& e) {
    if (e.error() == errc::autograd_pass_aborted) {
      const std::string text = e.what();
      const bool says =
          text.find("bad_alloc") != std::string::npos || text.find("memory") != std::string::npos;
      return says ? "" : text;
    }
  } catch (...) {
  }
  return not_a_shortage(thrown);
}

/// Nothing is left of any pass, call or tensor; every link lives.
asio::awaitable<bool> all_is_well(poor_cluster& all, worker& me) {
  const auto live = [](worker& w) -> auto& { return static_cast<weft::engine::worker&>(w); };
  const bool idle = co_await eventually([&] {
    for (std::uint32_t r = 0; r < all.size(); ++r) {
      auto& s = all.at(r).use<autograd_service>();
      if (s.passes() + s.contexts() != 0 || live(all.at(r)).memory()->used() != 0) return false;
    }
    return true;
  });
  for (std::uint32_t r = 0; r < all.size(); ++r) {
    INFO("worker ", r, ": ", all.at(r).use<autograd_service>().passes(), " passes, ",
         all.at(r).use<autograd_service>().contexts(), " contexts, ",
         live(all.at(r)).memory()->used(), " bytes");
    CHECK(idle);
  }
  INFO(me.link_to(1).reason().message());
  CHECK(me.link_to(1).now() == weft::link::state::up);
  CHECK(calls_waiting(me, 1) == 0);
  co_return idle&& me.link_to(1).now() == weft::link::state::up;
}

using optimizer = weft::optim::distributed<torch::optim::SGD>;

/// What is worked on while memory lacks.
enum class work { call, backward, broken_backward, step, step_of_own, release };
/// Where it lacks.
enum class place { caller, pool_here, pool_there, links_here, links_there };

class scene {
 public:
  scene(poor_cluster& all, worker& me) : all_(all), me_(me) {}

  asio::awaitable<void> run() {
    CHECK(co_await me_.peer(1).call<&add>(1, 2) == 3);
    pools_[0] = reinterpret_cast<thread_memory*>(co_await me_.peer(0).call<&pool_thread>());
    pools_[1] = reinterpret_cast<thread_memory*>(co_await me_.peer(1).call<&pool_thread>());
    parameter_ = me_.peer(1).remote<&parameter>();
    optimizer_ = co_await optimizer::create(me_, {parameter_}, torch::optim::SGDOptions(0.5));
    for (const work what : {work::call, work::backward, work::broken_backward, work::step,
                            work::step_of_own, work::release}) {
      for (const place where : {place::caller, place::pool_here, place::pool_there,
                                place::links_here, place::links_there}) {
        if (what == work::release && where != place::caller) continue;
        for (const long further : {0L, 3L, 40L, all_of_them}) {
          // A link or a pool thread that has none for more than a tenth of a second cannot tell
          // other workers what it owes them: the one ends, who waits for the other times out.
          if (where != place::caller && further == all_of_them) continue;
          CAPTURE(static_cast<int>(what));
          CAPTURE(static_cast<int>(where));
          CAPTURE(further);
          if (!co_await all_points(what, where, further)) co_return;
        }
      }
    }
    optimizer_ = {};
    parameter_ = {};
    const std::pair<work, place> needed[] = {
        {work::call, place::caller},          {work::call, place::pool_there},
        {work::backward, place::pool_here},   {work::backward, place::links_here},
        {work::backward, place::links_there}, {work::broken_backward, place::links_there},
        {work::step, place::pool_there}};
    for (const auto& [what, where] : needed) {
      CAPTURE(static_cast<int>(what));
      CAPTURE(static_cast<int>(where));
      CHECK(struck_[{what, where}] > 0);
    }
  }

 private:
  /// Of the links' entries, each by itself.
  asio::awaitable<bool> all_points(work what, place where, long further) {
    const bool entries = where == place::links_here || where == place::links_there;
    bool well = true;
    bool met = true;
    int which = 0;
    while (well && met && which < 100) {
      ++which;
      CAPTURE(which);
      const points met_here = co_await at_every_point(1000, [&](int n) -> asio::awaitable<outcome> {
        const outcome now = co_await once(what, where, which, n, further);
        well = co_await all_is_well(all_, me_);
        co_return well ? now : outcome{};
      });
      struck_[{what, where}] += met_here.struck;
      met = entries && entry::met;
    }
    CHECK(which < 100);
    co_return well;
  }

  /// One round; memory lacks in it for `what` at `where`.
  asio::awaitable<outcome> once(work what, place where, int which, long n, long further) {
    outcome now;
    const at::Tensor x = leaf();
    std::exception_ptr thrown;
    co_await weft::autograd::with_context(me_, [&](context ctx) -> asio::awaitable<void> {
      at::Tensor y;
      const auto call = [&](bool poor) -> asio::awaitable<std::exception_ptr> {
        co_return co_await lacking(
            poor, where, which, n, further, now,
            [&] { return me_.spawn(me_.peer(1).call<&twice>(x)); },
            [&y](weft::future<at::Tensor> f) { return into(std::move(f), y); });
      };
      const auto pass = [&](bool poor) -> asio::awaitable<std::exception_ptr> {
        const at::Tensor loss = (y * x).sum();
        co_return co_await lacking(
            poor, where, which, n, further, now, [&] { return me_.spawn(ctx.backward(loss)); },
            [](weft::future<void> f) { return std::move(f).get(); });
      };
      thrown = co_await call(what == work::call);
      if (thrown && what == work::call) CHECK_FALSE(co_await call(false));
      if (what == work::backward) {
        thrown = co_await pass(true);
        CHECK(co_await eventually([&] { return passes() == 0; }));
        {
          const std::lock_guard lock(weft::engine::state_of(ctx.state())->mutex);
          CHECK(weft::engine::state_of(ctx.state())->waiters.empty());
        }
        if (thrown) {
          CHECK((co_await ctx.gradients()).empty());
          CHECK_FALSE(co_await call(false));  // what it went through may be released
        }
      }
      if (what == work::broken_backward) {
        // The other worker has said done when the hook throws.
        const at::Tensor through = x * 1;
        through.register_hook(
            [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("the hook throws"); });
        y = co_await me_.peer(1).call<&twice>(through);
        const at::Tensor loss = y.sum();
        const auto failed = co_await lacking(
            true, where, which, n, further, now, [&] { return me_.spawn(ctx.backward(loss)); },
            [](weft::future<void> f) { return std::move(f).get(); });
        const std::string why = not_told(failed);
        INFO(why);
        CHECK((why.empty() || why.find("the hook throws") != std::string::npos));
        CHECK(co_await eventually([&] { return passes() == 0; }));
        CHECK((co_await ctx.gradients()).empty());
        CHECK_FALSE(co_await call(false));
      }
      if (what != work::backward || thrown) {
        const auto failed = co_await pass(false);
        if (failed) CHECK(not_told(failed) == "no failure");
      }
      CHECK(same((co_await ctx.gradients()).find(x), x.detach() * 4));
      if (what == work::step) thrown = co_await train(ctx, where, which, n, further, now);
      if (what == work::step_of_own) {
        const at::Tensor before = x.detach().clone();
        weft::optim::detail::owner_optimizer<torch::optim::SGD> own({x},
                                                                    torch::optim::SGDOptions(0.5));
        const auto stepped = [](weft::future<bool> f) -> asio::awaitable<void> {
          const bool done = co_await std::move(f);  // outside of CHECK, which would catch
          CHECK(done);
        };
        thrown = co_await lacking(
            true, where, which, n, further, now,
            [&] { return me_.spawn(own.step_in_turn(me_, 1.0)); }, stepped);
        if (thrown) CHECK(co_await own.step_in_turn(me_, 1.0));
        CHECK(same(x.detach(), before - before * 2));
      }
      if (what == work::release) {
        const shortage lack(n, further);
        {
          const weft::autograd::detail::release_guard now_already(me_, ctx.state());
        }
        now.struck = shortage::struck();
      }
    });
    if (thrown) {
      now.failed = true;
      CHECK(not_told(thrown) == "");
    }
    CHECK(co_await me_.peer(1).call<&add>(20, 22) == 42);
    co_return now;
  }

  /// A step of the other worker's parameter while memory lacks; then one that works.
  asio::awaitable<std::exception_ptr> train(context ctx, place where, int which, long n,
                                            long further, outcome& now) {
    const at::Tensor before = co_await parameter_.call<&look>();
    const at::Tensor loss = (co_await parameter_.call<&scaled>(at::ones({3}))).sum();
    co_await ctx.backward(loss);
    const auto thrown = co_await lacking(
        true, where, which, n, further, now, [&] { return me_.spawn(optimizer_.step(ctx)); },
        [](weft::future<void> f) { return std::move(f).get(); });
    const at::Tensor then = co_await parameter_.call<&look>();
    INFO(before[0].item<float>(), " became ", then[0].item<float>());
    CHECK((same(then, before - 0.5) || (thrown && same(then, before))));
    co_await optimizer_.step(ctx);
    const at::Tensor last = co_await parameter_.call<&look>();
    // Who was told that it failed may not have waited for it.
    CHECK((same(last, then - 0.5) || (thrown && same(last, before - 1.0))));
    co_return thrown;
  }

  static asio::awaitable<void> into(weft::future<at::Tensor> from, at::Tensor& out) {
    out = co_await std::move(from);
  }

  /// What `begin()` started, while memory lacks where it should, threw. `rest(future)` awaits it:
  /// that has memory, or nobody would hear of what goes on.
  template <class Begin, class Rest>
  asio::awaitable<std::exception_ptr> lacking(bool poor, place where, int which, long n,
                                              long further, outcome& now, Begin begin, Rest rest) {
    if (!poor) co_return co_await end_of(rest(begin()));
    std::exception_ptr thrown;
    std::optional<decltype(begin())> begun;
    thread_memory* const pool = where == place::pool_here    ? pools_[0]
                                : where == place::pool_there ? pools_[1]
                                                             : nullptr;
    if (pool) pool->lack(n, further);
    if (where == place::links_here) entry::arm(0, which, n, further);
    if (where == place::links_there) entry::arm(1, which, n, further);
    try {
      std::optional<shortage> lack;
      if (where == place::caller) lack.emplace(n, further);
      begun.emplace(begin());
      now.struck = shortage::struck();
    } catch (...) {
      now.struck = shortage::struck();
      thrown = std::current_exception();
    }
    if (begun) thrown = co_await end_of(rest(std::move(*begun)));
    if (pool) now.struck = pool->suffice();
    if (where == place::links_here || where == place::links_there) {
      entry::disarm();
      CHECK(co_await eventually([] { return !entry::inside; }));
      now.struck = entry::struck;
    }
    co_return thrown;
  }
  std::size_t passes() {
    std::size_t n = 0;
    for (std::uint32_t r = 0; r < all_.size(); ++r) {
      n += all_.at(r).use<autograd_service>().passes();
    }
    return n;
  }

  std::map<std::pair<work, place>, int> struck_;  // failed allocations
  poor_cluster& all_;
  worker& me_;
  thread_memory* pools_[2] = {};
  weft::rref<at::Tensor> parameter_;
  optimizer optimizer_;
};

void run_poor(over how, unsigned io_threads) {
  CAPTURE(name_of(how));
  CAPTURE(io_threads);
  static_cast<void>(spared());  // looks names up
  thread_memory::spare(&spared);
  weft::options o = with_io_threads(io_threads);
  o.compute_threads = 1;
  poor_cluster all(2, how, o);
  const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    scene s(all, me);
    co_await s.run();
  });
  for (const weft::error& e : ends) {
    INFO(e.message());
    CHECK_FALSE(e);
  }
}

TEST_CASE(
    "shortage: wherever memory lacks in training, the caller is told and the next step works") {
  run_poor(over::inproc, 0);
  run_poor(over::tcp, 1);
}

}  // namespace poor_gradients

template class weft::testing::cluster_with<weft::rref_service, poor_gradients::poor_service>;
