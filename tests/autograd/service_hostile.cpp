// SPDX-License-Identifier: BSL-1.0
// Frames and sections that no correct worker sends: a typed error or a closed link, never a crash,
// never a gradient that changed, and others are served on.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>
#include <weft/engine/services/context_state.hpp>

#include <chrono>
#include <condition_variable>
#include <core/bounded_wait.hpp>
#include <cstring>
#include <map>
#include <mutex>
#include <rpc/raw_peer.hpp>

#include <poll.h>

namespace autograd_tests {

using bytes_t = std::vector<std::byte>;
using namespace weft::autograd;
namespace codes = weft::engine;

/// A frame of the autograd service with that content, as `frame_header.payload` carries it.
weft::frame frame_of(const bytes_t& what, const std::vector<at::Tensor>& tensors = {}) {
  weft::message m;
  m.payload().count(what.size());
  m.payload().raw(what.data(), what.size());
  for (const at::Tensor& t : tensors) m.record().get<weft::tensor_table>().add(t);
  weft::frame_header header;
  header.kind = weft::frame_kind::autograd;
  return std::move(m).finish(header);
}
bytes_t release_of(context_id id) {
  bytes_t out(9);
  out[0] = std::byte{codes::release_frame};
  std::memcpy(out.data() + 1, &id, sizeof id);
  return out;
}
bytes_t joined_of(context_id id, const std::vector<std::uint32_t>& ranks) {
  bytes_t out(13 + ranks.size() * 4);
  const auto count = static_cast<std::uint32_t>(ranks.size());
  out[0] = std::byte{codes::joined_frame};
  std::memcpy(out.data() + 1, &id, sizeof id);
  std::memcpy(out.data() + 9, &count, sizeof count);
  std::memcpy(out.data() + 13, ranks.data(), ranks.size() * 4);
  return out;
}
bytes_t section_of(context_id id, message_id message, const std::vector<std::uint32_t>& ranks) {
  bytes_t out(21 + ranks.size() * 4);  // in SMART mode
  const auto count = static_cast<std::uint32_t>(ranks.size());
  std::memcpy(out.data(), &id, 8);
  std::memcpy(out.data() + 8, &message, 8);
  std::memcpy(out.data() + 17, &count, 4);
  if (!ranks.empty()) std::memcpy(out.data() + 21, ranks.data(), ranks.size() * 4);
  return out;
}
/// Hands a frame to worker `to` as if it came over the link from `from`.
weft::expected<void> deliver(workers& all, std::uint32_t from, std::uint32_t to, weft::frame f) {
  weft::incoming_message m(std::move(f));
  if (auto ok = m.check(); !ok) return ok;
  return service(all, to).frame(all.at(to).link_to(from), m);
}

/// All kinds of control messages about that pass; `message` exists between the workers.
std::vector<control> messages_of(const pass_id& pass, message_id message) {
  grad_message grad{message, 1, {1}};
  return {{pass, need_message{0, graph_retention::release, {message}}},
          {pass, need_message{1, graph_retention::retain, {message, message + 1}}},
          {pass, ack_message{0, {1}}},
          {pass, go_message{}},
          {pass, grad},
          {pass, done_message{}},
          {pass, abort_message{1, abort_reason::failed, "no"}},
          {pass, end_message{}},
          {pass, end_message{{1, 99}}},
          {pass, which_message{}},
          {pass, waits_message{"for ever"}},
          {pass, grad_message{message, 1, {1}, pass_opening{{}, 0}}},
          {pass, grad_message{message, 1, {1}, pass_opening{{}, 3}}}};
}
bytes_t steps_of(context_id id, const std::vector<std::uint64_t>& steps) {
  bytes_t out(13 + steps.size() * 8);
  const auto count = static_cast<std::uint32_t>(steps.size());
  out[0] = std::byte{codes::steps_frame};
  std::memcpy(out.data() + 1, &id, sizeof id);
  std::memcpy(out.data() + 9, &count, sizeof count);
  std::memcpy(out.data() + 13, steps.data(), steps.size() * 8);
  return out;
}

/// One worker among two members that the test plays: they hear everything and answer nothing.
class victim {
 public:
  using main_function = std::function<asio::awaitable<void>(victim&, worker&)>;

  victim() = default;
  /// With so small an outbox, and worker 1 reads nothing before `read_at_last`.
  explicit victim(std::size_t outbox_frames) : outbox_frames_(outbox_frames), reads_(false) {}

  void run(const main_function& main_) {
    std::vector<std::thread> strangers;
    for (const std::uint32_t r : {1u, 2u}) {
      strangers.emplace_back([this, r] {
        const std::string& endpoint = life_->members().members[0].addresses[0].endpoint;
        weft::testing::raw_peer stranger(endpoint);
        CHECK(stranger.greet(life_->members(), r, 0));
        if (r == 1) {
          std::unique_lock lock(mutex_);
          CHECK(changed_.wait_for(lock, std::chrono::seconds(40), [this] { return reads_; }));
        }
        stranger.hear_out();
      });
    }
    static_cast<void>(life_->run([&](worker& w) -> asio::awaitable<void> {
      CHECK(co_await eventually([&w] {
        return w.link_to(1).current_state() == weft::link::state::up &&
               w.link_to(2).current_state() == weft::link::state::up;
      }));
      co_await main_(*this, w);
      w.shutdown(weft::error(errc::cancelled, "the test is over"));
    }));
    life_.reset();
    for (auto& t : strangers) t.join();
  }
  /// Hands a frame to the service as if it came from that stranger.
  weft::expected<void> deliver(std::uint32_t from, weft::frame f, weft::error lacking = {}) {
    weft::incoming_message m(std::move(f), weft::default_limits, std::move(lacking));
    if (auto ok = m.check(); !ok) return ok;
    return service().frame(life_->at(0).link_to(from), m);
  }
  autograd_service& service() { return life_->at(0).use<autograd_service>(); }
  void read_at_last() {
    const std::lock_guard lock(mutex_);
    reads_ = true;
    changed_.notify_all();
  }

 private:
  /// The strangers give no sign of life.
  [[nodiscard]] weft::options for_the_mute() const {
    weft::options o = with_io_threads(1);
    o.lost_after = {};
    o.shutdown_deadline = std::chrono::seconds(1);  // nor do they answer at the end
    o.outbox_frames = outbox_frames_;
    return o;
  }

  const std::size_t outbox_frames_ = weft::options().outbox_frames;
  std::unique_ptr<workers::life> life_ =
      std::make_unique<workers::life>(1, over::tcp, with_pool(for_the_mute()), 2);
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reads_ = true;
};

/// A frame and everything that is one step away from it.
std::vector<bytes_t> damaged(const bytes_t& good) {
  std::vector<bytes_t> all = {good};
  for (std::size_t n = 0; n < good.size(); ++n) {
    all.emplace_back(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
  }
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    all.push_back(good);
    all.back()[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  for (std::size_t i = 0; i + 4 <= good.size(); ++i) {  // each length: 0, and far too much
    for (const std::uint32_t length : {0u, 0xffffffffu}) {
      all.push_back(good);
      std::memcpy(all.back().data() + i, &length, 4);
    }
  }
  all.push_back(good);
  all.back().push_back(std::byte{0});
  return all;
}

enum class stage { no_pass, planned, running };

TEST_CASE("autograd hostile: no frame does harm at any stage of a pass") {
  victim scene;
  std::size_t refused = 0, taken = 0;
  scene.run([&](victim& v, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {2});
    const auto throw_at = [&](std::uint32_t from, const bytes_t& what,
                              const std::vector<at::Tensor>& tensors) {
      const auto result = v.deliver(from, frame_of(what, tensors));
      ++(result ? taken : refused);
      if (!result) CHECK(result.error() == errc::protocol_error);
    };
    const auto assault = [&](stage at, std::uint32_t initiator, std::size_t which) {
      return weft::autograd::with_context(
          me, [&, at, initiator, which](context ctx) -> asio::awaitable<void> {
            auto call = me.peer(1).start<&twice>(a);  // message 1 to worker 1, never answered
            weft::future<weft::error> pass;
            if (at != stage::no_pass) {
              const at::Tensor y = at::ones({2});
              record_receive(std::vector{y}, {1, 5, ctx.id()});
              pass = me.spawn(thrown_by(ctx.backward((y * a).sum())));
              CHECK(v.service().passes() == 1);
              if (at == stage::running) {
                CHECK(v.deliver(1, frame_of(encode({{ctx.id(), 0, 1}, ack_message{0, {1}}}))));
              }
            }
            for (const std::uint32_t number : {1u, 3u}) {
              const auto good = encode(messages_of({ctx.id(), initiator, number}, 1)[which]);
              for (const std::uint32_t from : {1u, 2u}) {
                for (const bytes_t& bad : damaged(good)) throw_at(from, bad, {});
              }
            }
            CHECK(v.service().contexts() == 1);
            // An opening may be a pass of worker 1 that has run here; then gradients wait for its end.
            const bool opens = which + 2 >= messages_of({}, 0).size();
            if (at == stage::no_pass && !opens) {
              co_await ctx.backward((a * a).sum());
              const auto gradients = co_await ctx.gradients();
              CHECK(same(gradients.find(a), a.detach() * 2));
            }
          });
    };
    for (const stage at : {stage::no_pass, stage::planned, stage::running}) {
      for (const std::uint32_t initiator : {0u, 1u, 2u}) {
        for (std::size_t which = 0; which < messages_of({}, 0).size(); ++which) {
          co_await assault(at, initiator, which);
          CHECK(v.service().contexts() == 0);
          CHECK(v.service().passes() == 0);
        }
      }
    }
    // About contexts that are not, or not any more.
    for (const context_id id : {make_context_id(0, 1), make_context_id(0, 9999),
                                make_context_id(1, 1), make_context_id(2, 0xffffffff)}) {
      for (const control& c : messages_of({id, 1, 1}, 1)) {
        for (const bytes_t& bad : damaged(encode(c))) throw_at(1, bad, {});
      }
      for (const bytes_t& bad : damaged(release_of(id))) throw_at(1, bad, {});
      for (const bytes_t& bad : damaged(joined_of(id, {1, 2}))) throw_at(2, bad, {});
    }
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      auto call = me.peer(1).start<&twice>(a);
      for (const bytes_t& bad : damaged(release_of(ctx.id()))) throw_at(2, bad, {});
      for (const bytes_t& bad : damaged(joined_of(ctx.id(), {1, 2}))) throw_at(2, bad, {});
      const auto grad = encode({{ctx.id(), 1, 1}, grad_message{1, 1, {1}}});
      for (const bytes_t& bad : damaged(grad)) throw_at(1, bad, {at::ones({2})});
      co_await ctx.backward((co_await me.peer(0).call<&twice>(a)).sum());
      CHECK(same((co_await ctx.gradients()).find(a), at::full({2}, 2.0)));
    });
    CHECK(v.service().contexts() == 0);
  });
  CHECK(refused > 10000);
  CHECK(taken > 1000);
}

TEST_CASE("autograd hostile: what a peer can make a worker keep is bounded") {
  victim scene;
  scene.run([&](victim& v, worker& me) -> asio::awaitable<void> {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      auto call = me.peer(1).start<&twice>(leaf(1, {2}));
      // Passes that begin and never end: worker 1 asks for the message that it was sent.
      for (std::uint32_t number = 1; number < 20000; number += 2) {
        const need_message need{0, graph_retention::release, {1}};
        CHECK(v.deliver(1, frame_of(encode({{ctx.id(), 1, number}, need}))));
      }
      CHECK(v.service().passes() == autograd_service::most_passes);
      {
        const std::lock_guard lock(weft::engine::state_of(ctx.state())->mutex);
        CHECK(weft::engine::state_of(ctx.state())->ended.intervals(1) <= 4096);
      }
      // Gradients that came too early are kept once, whatever else comes in their name.
      const auto held = std::make_shared<int>();
      const auto gradient = [&] {
        return at::from_blob(
            std::make_unique<float[]>(2).release(), {2},
            [held](void* p) { delete[] static_cast<float*>(p); }, at::TensorOptions());
      };
      for (int copy = 0; copy < 100; ++copy) {
        for (std::uint32_t number = 1; number < 200; number += 2) {
          CHECK(v.deliver(
              1, frame_of(encode({{ctx.id(), 1, number}, grad_message{1, 1, {1}}}), {gradient()})));
        }
      }
      CHECK(held.use_count() <= 1 + 100 + 1);
      // One's own passes go on.
      const at::Tensor a = leaf(3, {2});
      CHECK(co_await thrown_by(ctx.backward((a * a).sum())) == errc::too_many_calls);
      co_return;
    });
    CHECK(v.service().passes() == 0);
    // Contexts: the calls of too many are refused, and the link stays.
    std::size_t served = 0, refused = 0;
    for (std::uint32_t serial = 1; serial <= autograd_service::most_contexts + 100; ++serial) {
      weft::message m;
      m.section(weft::section_kind::autograd, section_of(make_context_id(1, 2 * serial), 0, {}));
      weft::frame_header header;
      header.kind = weft::frame_kind::request;
      weft::incoming_message in(std::move(m).finish(header));
      REQUIRE(in.check());
      REQUIRE(v.service().arrive(me.link_to(1), in));
      const auto& setup = in.record().get<weft::scope_setup>();
      if (setup.refused) {
        CHECK(setup.refused == errc::resource_exhausted);
        CHECK_FALSE(setup.autograd);
        ++refused;
      } else {
        ++served;
      }
    }
    CHECK(served == autograd_service::most_contexts);
    CHECK(refused == 100);
    CHECK(v.service().contexts() == autograd_service::most_contexts);
    CHECK(me.link_to(1).current_state() == weft::link::state::up);
  });
}

TEST_CASE("autograd hostile: one peer's contexts leave others theirs") {
  victim scene;
  scene.run([&](victim& v, worker& me) -> asio::awaitable<void> {
    const auto call_in = [&](std::uint32_t from, context_id id) {
      weft::message m;
      m.section(weft::section_kind::autograd, section_of(id, 0, {}));
      weft::frame_header header;
      header.kind = weft::frame_kind::request;
      weft::incoming_message in(std::move(m).finish(header));
      REQUIRE(in.check());
      REQUIRE(v.service().arrive(me.link_to(from), in));
      return in.record().get<weft::scope_setup>().refused;
    };
    constexpr auto most = autograd_service::most_contexts;
    // Also in the name of another.
    for (std::uint64_t n = 1; n <= most; ++n) {
      REQUIRE_FALSE(call_in(1, make_context_id(n % 2 == 0 ? 1 : 2, 2 * n)));
    }
    CHECK(call_in(1, make_context_id(1, 1)) == errc::resource_exhausted);
    CHECK_FALSE(call_in(2, make_context_id(2, 1)));
    CHECK_FALSE(call_in(2, make_context_id(1, 3)));
    CHECK_FALSE(call_in(1, make_context_id(2, 1)));  // which is there
    // Each has room again when one of its own is over, and is counted once.
    CHECK(v.deliver(2, frame_of(release_of(make_context_id(2, 1)))));
    CHECK(call_in(1, make_context_id(1, 1)) == errc::resource_exhausted);
    for (int round = 0; round < 2; ++round) {
      CHECK(v.deliver(1, frame_of(release_of(make_context_id(1, 4)))));
    }
    CHECK_FALSE(call_in(1, make_context_id(1, 1)));
    CHECK(call_in(1, make_context_id(1, 5)) == errc::resource_exhausted);
    CHECK(v.service().contexts() == most + 1);
    co_return;
  });
}

void swallow(std::string) {}

TEST_CASE("autograd hostile: refusals reach a slow peer, and not without end who reads none") {
  constexpr std::size_t room = 8;
  victim scene(room);
  scene.run([](victim& v, worker& me) -> asio::awaitable<void> {
    const auto ask = [&v](std::uint32_t number) {
      return v.deliver(1, frame_of(encode({{make_context_id(1, 1), 1, number},
                                           need_message{1, graph_retention::release, {1}}})));
    };
    bool full = false;
    me.peer(1).post<&swallow>(std::string(40'000'000, 'x'));  // more than sockets hold
    for (std::size_t n = 0; n < 2 * room && !full; ++n) {
      try {
        me.peer(1).post<&swallow>(std::string());
      } catch (const weft::rpc_error& e) {
        full = e.error() == errc::too_many_calls;
      }
    }
    CHECK(full);
    const std::uint64_t before = v.service().frames();
    for (std::uint32_t n = 1; n <= 10 * room; ++n) CHECK(ask(n));
    CHECK(v.service().frames() == before + room);
    v.read_at_last();
    CHECK(co_await eventually([&me] { return me.link_to(1).waiting() == 0; }));
    CHECK(ask(1000));
    CHECK(v.service().frames() == before + room + 1);
  });
}

TEST_CASE("autograd hostile: openings of passes without discovery that nobody means") {
  victim scene;
  scene.run([&](victim& v, worker& me) -> asio::awaitable<void> {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      auto call = me.peer(1).start<&twice>(leaf(1, {2}));
      const auto grad_of = [&](std::uint32_t number, std::optional<pass_opening> opens) {
        return frame_of(encode({{ctx.id(), 1, number}, grad_message{1, 1, {1}, opens}}),
                        {at::ones({2})});
      };
      // It repeats a plan that is not there: refused, and its initiator is told.
      std::uint64_t sent = v.service().frames();
      CHECK(v.deliver(1, grad_of(1, pass_opening{{}, 7})));
      CHECK(v.service().passes() == 0);
      CHECK(v.service().frames() == sent + 1);
      // From a worker that did not get the message, or about one that is not there.
      CHECK_FALSE(v.deliver(2, grad_of(3, pass_opening{{}, 0})));
      CHECK_FALSE(v.deliver(
          1, frame_of(encode({{ctx.id(), 1, 5}, grad_message{9, 1, {1}, pass_opening{{}, 0}}}),
                      {at::ones({2})})));
      // A pass is one or the other, and its settings do not change.
      CHECK(v.deliver(1, grad_of(7, std::nullopt)));
      sent = v.service().frames();
      CHECK(v.deliver(1, grad_of(7, pass_opening{{}, 0})));
      CHECK(v.service().frames() > sent);  // refused
      // Questions about a pass that is not known are not answered.
      sent = v.service().frames();
      CHECK(v.deliver(1, frame_of(encode({{ctx.id(), 1, 99}, which_message{}}))));
      CHECK(v.deliver(1, frame_of(encode({{ctx.id(), 1, 99}, waits_message{"x"}}))));
      CHECK(v.service().frames() == sent);
      // Steps of optimizers that are not there.
      CHECK(v.deliver(1, frame_of(steps_of(ctx.id(), {1, 2, 3}))));
      CHECK(v.deliver(1, frame_of(steps_of(make_context_id(2, 9), {1}))));
      bytes_t cut = steps_of(ctx.id(), {1});
      cut.pop_back();
      CHECK_FALSE(v.deliver(1, frame_of(cut)));
      co_return;
    });
  });
}

TEST_CASE("autograd hostile: gradients with a history of a message that was not recorded") {
  victim scene;
  scene.run([&](victim& v, worker& me) -> asio::awaitable<void> {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      auto call = me.peer(1).start<&twice>(leaf(1, {2}));
      const auto with_section = [&](const control_body& body, const bytes_t& section,
                                    const at::Tensor& tensor) {
        const bytes_t what = encode({{ctx.id(), 1, 1}, body});
        weft::message m;
        m.payload().count(what.size());
        m.payload().raw(what.data(), what.size());
        m.record().get<weft::tensor_table>().add(tensor);
        m.section(weft::section_kind::autograd, section);
        weft::frame_header header;
        header.kind = weft::frame_kind::autograd;
        return std::move(m).finish(header);
      };
      const at::Tensor g = at::ones({2}).set_requires_grad(true);
      const grad_message grad{1, 1, {1}};
      CHECK_FALSE(v.deliver(1, with_section(grad, section_of(ctx.id(), 0, {}), g)));
      CHECK_FALSE(v.deliver(1, with_section(grad, section_of(ctx.id(), 5, {1}), g)));
      CHECK_FALSE(v.deliver(1, with_section(grad, section_of(make_context_id(2, 3), 5, {}), g)));
      CHECK_FALSE(v.deliver(1, with_section(done_message{}, section_of(ctx.id(), 5, {}), g)));
      CHECK_FALSE(v.deliver(1, with_section(grad, bytes_t(7), g)));
      CHECK(v.service().passes() == 0);
      CHECK(v.deliver(1, with_section(grad, section_of(ctx.id(), 5, {}), g)));  // a good one
      CHECK(v.service().passes() == 1);
      co_return;
    });
  });
}

TEST_CASE("autograd hostile: who was lied to about a pass is told so, and not cut off") {
  victim scene;
  scene.run([&](victim& v, worker& me) -> asio::awaitable<void> {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      auto call = me.peer(1).start<&twice>(leaf(1, {2}));
      const auto say = [&](std::uint32_t initiator, std::uint32_t number, control_body body) {
        return v.deliver(1, frame_of(encode({{ctx.id(), initiator, number}, std::move(body)})));
      };
      // About a pass of this worker that was never begun; by a forged need worker 1 may believe so.
      std::uint64_t sent = v.service().frames();
      CHECK(say(0, 99, need_message{0, graph_retention::release, {1}}));
      CHECK(say(0, 99, grad_message{1, 1, {1}}));
      CHECK(say(0, 99, done_message{}));
      CHECK(v.service().frames() == sent + 3);  // it is told each time
      sent = v.service().frames();
      CHECK(say(0, 99, abort_message{1, abort_reason::failed, "no"}));
      CHECK(v.service().frames() == sent);
      // An initiator hears from others who takes part, and who waits.
      CHECK(say(1, 7, go_message{}));
      CHECK(v.service().frames() == sent + 1);
      CHECK(v.service().passes() == 0);
      // What only the sender can have made up.
      CHECK_FALSE(say(0, 99, go_message{}));
      CHECK_FALSE(say(0, 99, end_message{}));
      CHECK_FALSE(say(0, 99, ack_message{0, {1}}));
      CHECK_FALSE(say(2, 7, go_message{}));
      CHECK_FALSE(say(2, 7, done_message{}));
      CHECK(me.link_to(1).current_state() == weft::link::state::up);
      co_return;
    });
  });
}

TEST_CASE("autograd hostile: a forged need does not part two others") {
  for (const auto how : {over::inproc, over::tcp}) {
    run_workers(3, how, with_io_threads(1), [](workers& all, worker& me) -> asio::awaitable<void> {
      const at::Tensor a = leaf(1, {2});
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor y = co_await me.peer(1).call<&twice>(a);
        // Worker 2 asks worker 1 for what it never sent, in a pass that worker 0 never began.
        const need_message need{0, graph_retention::release, {77}};
        const auto before = service(all, 1).frames();
        CHECK(deliver(all, 2, 1, frame_of(encode({{ctx.id(), 0, 50}, need}))));
        CHECK(service(all, 1).frames() > before);  // worker 0 is told
        co_await me.peer(1).call<&nothing>();      // behind that
        co_await ctx.backward(y.sum());
        CHECK(same((co_await ctx.gradients()).find(a), at::full({2}, 2.0)));
      });
      CHECK(co_await all_forgotten(all));
      for (const std::uint32_t r :
           {1u, 2u}) {  // that to worker 2, which was not called, may be slow
        CHECK(co_await eventually(
            [&] { return me.link_to(r).current_state() == weft::link::state::up; }));
      }
    });
  }
}

TEST_CASE("autograd service: gradients wait for the outcome of a pass that has run here") {
  victim scene;
  scene.run([&](victim& v, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {2});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      auto call = me.peer(1).start<&twice>(a);
      const auto say = [&](std::uint32_t number, control_body body,
                           const std::vector<at::Tensor>& tensors = {}) {
        CHECK(v.deliver(1, frame_of(encode({{ctx.id(), 1, number}, std::move(body)}), tensors)));
      };
      const auto settled = [&] {
        const std::lock_guard lock(weft::engine::state_of(ctx.state())->mutex);
        return weft::engine::state_of(ctx.state())->outcome_pending();
      };
      const auto pass_up_to_done = [&](std::uint32_t number) {
        say(number, need_message{0, graph_retention::retain, {1}});
        say(number, go_message{});
        say(number, grad_message{1, 1, {1}}, {at::ones({2})});
        return eventually(settled);
      };
      for (const bool good : {true, false}) {
        const std::uint32_t number = good ? 1 : 2;
        CHECK(co_await pass_up_to_done(number));
        auto first = me.spawn(ctx.gradients());
        auto second = me.spawn(ctx.gradients());
        for (int i = 0; i < 10; ++i) co_await asio::post(asio::use_awaitable);
        CHECK_FALSE(first.ready());
        CHECK_FALSE(second.ready());
        if (good) {
          say(number, end_message{});
        } else {
          say(number, abort_message{1, abort_reason::failed, "no"});
        }
        CHECK(same((co_await std::move(first)).find(a), at::ones({2})));
        CHECK(same((co_await std::move(second)).find(a), at::ones({2})));
      }
      // Not for ever, and not beyond the context.
      CHECK(co_await pass_up_to_done(3));
      const auto soon = weft::make_intrusive<weft::call_scope>();
      soon->deadline = me.time().now() + 20ms;
      auto patient = me.spawn(thrown_by(ctx.gradients()));
      CHECK(co_await weft::with_scope(weft::detail::context_of(me),
                                      weft::intrusive_ptr<const weft::call_scope>(soon),
                                      thrown_by(ctx.gradients())) == errc::timed_out);
      CHECK_FALSE(patient.ready());
      v.service().release(ctx.state());
      CHECK(co_await std::move(patient) == errc::autograd_context_gone);
    });
  });
}

TEST_CASE("autograd hostile: a need for what is not there is answered, so that nobody waits") {
  run_workers(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {2});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&twice>(a);
      // As if worker 1 had lost the context: its creator says so before the pass.
      CHECK(deliver(all, 0, 1, frame_of(release_of(ctx.id()))));
      CHECK(service(all, 1).contexts() == 0);
      const auto e = co_await thrown_by(ctx.backward(y.sum()));
      CHECK(e == errc::autograd_pass_aborted);
      CHECK(e.detail().peer == "worker1");
      CHECK(e.message().find("was released") != std::string::npos);
      // Nor is it made anew by calls, which are refused.
      const auto refused = co_await thrown_by(me.peer(1).call<&twice>(a));
      CHECK(refused == errc::autograd_context_gone);
      CHECK(refused.ran() == weft::call_progress::not_executed);
      CHECK(service(all, 1).contexts() == 0);
      // A message that was never recorded:
      const at::Tensor invented = at::ones({2});
      record_receive(std::vector{invented}, {2, 12345, ctx.id()});
      co_await me.peer(2).call<&nothing>();
      const auto unknown = co_await thrown_by(ctx.backward(invented.sum()));
      CHECK(unknown == errc::autograd_pass_aborted);
      CHECK(unknown.detail().peer == "worker2");
      CHECK(unknown.message().find("has recorded no message 12345") != std::string::npos);
    });
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor invented = at::ones({2});
      record_receive(std::vector{invented}, {2, 1, ctx.id()});
      const auto e = co_await thrown_by(ctx.backward(invented.sum()));
      CHECK(e.message().find("is unknown there") != std::string::npos);
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd hostile: gradients that do not fit the message are a failure of their sender") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    gate door;
    fragile::door = &door;
    const at::Tensor a = leaf(1, {2});
    const std::vector<std::vector<at::Tensor>> bad = {
        {}, {at::ones({3})}, {at::ones({2}, at::kDouble)}, {at::ones({2}), at::ones({2})}};
    for (const auto& tensors : bad) {
      door.close();
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor x = co_await me.peer(1).call<&fragile_twice>(a);
        auto pass = me.spawn(thrown_by(ctx.backward(x.sum(), {.limit = 20s})));
        // Worker 0 waits for the gradient of its own message 1, which worker 1 holds back.
        CHECK(co_await eventually([&] { return door.arrived() == 1; }));
        const auto id = weft::engine::state_of(ctx.state())->last_pass;
        const auto taken = deliver(
            all, 1, 0, frame_of(encode({{ctx.id(), 0, id}, grad_message{1, 1, {1}}}), tensors));
        const bool shape = tensors.size() == 1;
        CHECK(bool(taken) == shape);
        if (!taken) CHECK(taken.error() == errc::protocol_error);
        if (shape) {
          const auto e = co_await std::move(pass);
          CHECK(e == errc::autograd_pass_aborted);
          CHECK(e.message().find("than its tensor") != std::string::npos);
          door.open();
        } else {  // nothing changed by it
          door.open();
          CHECK_FALSE(co_await std::move(pass));
          CHECK(same((co_await ctx.gradients()).find(a), at::full({2}, 2.0)));
        }
      });
      CHECK(co_await all_forgotten(all));
    }
    fragile::door = nullptr;
  });
}

/// Sends one frame over the real link 1 -> 0, and returns how the run of worker 0 ended.
weft::error end_after(over how, const std::function<weft::frame(context_id)>& make) {
  workers all(3, how, with_io_threads(1));
  const auto ends = all.run([&](workers&, worker& me) -> asio::awaitable<void> {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      static_cast<void>(co_await me.peer(1).call<&twice>(leaf(1, {2})));
      weft::link& link = all.at(1).link_to(0);
      if (link.append(make(ctx.id()))) link.flush();
      // Either that closes the link, or it is as if nothing was sent.
      const bool lost = co_await eventually(
          [&] { return me.link_to(1).current_state() == weft::link::state::down; });
      CHECK(lost);
      co_await me.peer(2).call<&nothing>(weft::within(5s));
    });
  });
  return ends[0];
}

TEST_CASE("autograd hostile: only who owes a gradient can say that it did not fit") {
  victim scene;
  scene.run([](victim& v, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {2});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      auto call = me.peer(1).start<&twice>(a);  // message 1 to worker 1, never answered
      const at::Tensor y = at::ones({2});
      record_receive(std::vector{y}, {1, 5, ctx.id()});
      auto pass = me.spawn(thrown_by(ctx.backward((y * a).sum())));
      CHECK(v.service().passes() == 1);
      const weft::error why(errc::resource_exhausted, "no room");
      const auto lacking = [&](std::uint32_t from, const grad_message& what) {
        return v.deliver(from, frame_of(encode({{ctx.id(), 0, 1}, what})), why);
      };
      for (const auto& [from, what] :
           {std::pair{2u, grad_message{1, 1, {1}}}, std::pair{1u, grad_message{1, 2, {1}}},
            std::pair{1u, grad_message{7, 1, {1}}}}) {
        const auto result = lacking(from, what);
        REQUIRE_FALSE(result);
        CHECK(result.error() == errc::protocol_error);
        CHECK(v.service().passes() == 1);
      }
      CHECK(lacking(1, {1, 1, {1}}));
      CHECK(v.service().passes() == 0);
      const weft::error end = co_await std::move(pass);
      CHECK(end == errc::autograd_pass_aborted);
      CHECK(end.message().find("did not fit: no room") != std::string::npos);
    });
  });
}

TEST_CASE("autograd hostile: over a real link, such a frame closes it and the others are served") {
  const auto pass = [](context_id id) { return pass_id{id, 1, 1}; };
  const std::vector<std::function<weft::frame(context_id)>> frames = {
      [](context_id) { return frame_of({}); },
      [](context_id) { return frame_of({std::byte{99}}); },
      [](context_id id) { return frame_of(release_of(id)); },
      [](context_id id) { return frame_of(joined_of(id, {7})); },
      [](context_id id) { return frame_of(encode({{id, 2, 1}, go_message{}})); },
      [&](context_id id) { return frame_of(encode({pass(id), done_message{}}), {at::ones({2})}); },
      [](context_id id) { return frame_of(encode({{id, 0, 99}, end_message{}})); },
  };
  for (std::size_t i = 0; i < frames.size(); ++i) {
    CAPTURE(i);
    const auto e = end_after(i % 2 == 0 ? over::tcp : over::inproc, frames[i]);
    CAPTURE(e.message());
    CHECK(e == errc::peer_died);
    CHECK(e.message().find("autograd") != std::string::npos);
  }
}

/// Delivers a request or reply with that autograd section to worker `to`'s service.
weft::expected<void> arrive(workers& all, std::uint32_t from, std::uint32_t to,
                            weft::frame_kind kind, const bytes_t& section) {
  weft::message m;
  m.section(weft::section_kind::autograd, section);
  weft::frame_header header;
  header.kind = kind;
  weft::incoming_message in(std::move(m).finish(header));
  if (auto ok = in.check(); !ok) return ok;
  return service(all, to).arrive(all.at(to).link_to(from), in);
}
TEST_CASE("autograd context: a reply that crosses the release tells who joined below its call") {
  run_workers(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    context_id id = 0;
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      id = ctx.id();
      co_return;
    });
    // Worker 1 called worker 2 in it, and its reply was on the way when the scope ended.
    co_await me.peer(2).call<&nothing>();
    CHECK(arrive(all, 1, 2, weft::frame_kind::request, section_of(id, 0, {})));
    CHECK(service(all, 2).contexts() == 1);
    const auto before = service(all, 0).frames();
    CHECK(arrive(all, 1, 0, weft::frame_kind::reply, section_of(id, 0, {2})));
    CHECK(service(all, 0).frames() == before + 1);
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd context: whom a lost worker brought in is released all the same") {
  run_workers(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    for (const int rank : {1, 2}) co_await me.peer(rank).call<&nothing>();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      // Worker 1 called worker 2 in it, and is lost there before it can tell of it.
      CHECK(arrive(all, 1, 2, weft::frame_kind::request, section_of(ctx.id(), 0, {})));
      CHECK(service(all, 2).contexts() == 1);
      all.at(2).link_to(1).mark_down(weft::error(errc::peer_died, "the test cut the link"));
      const auto state = weft::engine::state_of(ctx.state());
      CHECK(co_await eventually([&] {
        const std::lock_guard lock(state->mutex);
        return state->joined.contains(2);
      }));
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd hostile: damaged sections are refused by a type") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    co_await me.peer(1).call<&nothing>();
    using kinds = weft::frame_kind;
    for (const kinds kind : {kinds::request, kinds::reply, kinds::failure}) {
      const bytes_t good =
          section_of(make_context_id(0, 5), 3,
                     kind == kinds::request ? std::vector<std::uint32_t>{} : std::vector{0u, 1u});
      CHECK(arrive(all, 0, 1, kind, good));
      for (std::size_t n = 0; n < good.size(); ++n) {
        const auto result =
            arrive(all, 0, 1, kind, {good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)});
        REQUIRE_FALSE(result);
        CHECK(result.error() == errc::protocol_error);
      }
      for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
        bytes_t bad = good;
        bad[bit / 8] ^= std::byte{1} << (bit % 8);
        const auto result = arrive(all, 0, 1, kind, bad);
        if (!result) CHECK(result.error() == errc::protocol_error);
        if (bit >= 129 && bit < 168) CHECK_FALSE(result);  // no such mode, another count
      }
    }
    CHECK_FALSE(arrive(all, 0, 1, kinds::request, section_of(make_context_id(0, 5), 3, {0})));
    CHECK_FALSE(arrive(all, 0, 1, kinds::reply, section_of(make_context_id(0, 5), 3, {2})));
    CHECK_FALSE(arrive(all, 0, 1, kinds::request, section_of(make_context_id(2, 5), 3, {})));
    CHECK_FALSE(arrive(all, 0, 1, kinds::request, section_of(make_context_id(0, 0), 3, {})));
    CHECK_FALSE(arrive(all, 0, 1, kinds::request, section_of(make_context_id(1, 1), 3, {})));
    co_await me.peer(1).call<&nothing>();
  });
}

}  // namespace autograd_tests
