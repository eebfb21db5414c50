// SPDX-License-Identifier: BSL-1.0
// Messages of a context whose tensors do not fit the receiver's memory: their call or pass fails,
// no gradient is wrong or missing in silence, and the context goes on and is released everywhere.
#include "service_functions.hpp"

namespace autograd_shortage {

using namespace autograd_tests;
using weft::autograd::backward_options;

constexpr std::int64_t large = 400'000;  // floats: more than the budget
weft::options with_little_memory(unsigned io_threads) {
  weft::options o = with_io_threads(io_threads);
  o.bounds.link_tensor_bytes = 1'000'000;
  return o;
}
void little_memory_everywhere(std::uint32_t size, const workers::main_function& main_) {
  for (const over how : {over::tcp, over::unix_socket}) {
    for (const unsigned io_threads : io_ways()) {
      CAPTURE(name_of(how));
      CAPTURE(io_threads);
      run_workers(size, how, with_little_memory(io_threads), main_);
    }
  }
}

at::Tensor repeated(const at::Tensor& a, std::int64_t times) { return a.repeat({times}) * 1; }
asio::awaitable<at::Tensor> repeated_elsewhere(worker& me, at::Tensor a, std::int64_t times) {
  co_return co_await me.peer(2).call<&keep>(repeated(co_await me.peer(2).call<&twice>(a), times));
}
asio::awaitable<at::Tensor> told_elsewhere(worker& me, at::Tensor a, std::int64_t times) {
  const at::Tensor b = co_await me.peer(2).call<&twice>(a);
  co_return repeated(b, times);
}
at::Tensor sum_of_squares(const at::Tensor& a) { return (a * a).sum(); }
at::Tensor filled(std::int64_t size) { return at::full({size}, 1.5); }

namespace {

TEST_CASE("autograd shortage: a call that does not fit fails, the others are trained") {
  little_memory_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {4});
    const at::Tensor big = leaf(2, {large});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&twice>(a);
      const auto request = co_await thrown_by(me.peer(1).call<&keep>(big));
      CHECK(request == errc::resource_exhausted);
      CHECK(request.ran() == weft::call_progress::not_executed);
      const auto reply = co_await thrown_by(me.peer(1).call<&repeated>(a, large / 4));
      CHECK(reply == errc::resource_exhausted);
      CHECK(reply.ran() == weft::call_progress::executed);
      const at::Tensor z = co_await me.peer(1).call<&twice>(y);
      co_await ctx.backward((y + z).sum());
      const auto gradients = co_await ctx.gradients();
      CHECK(same(gradients.find(a), at::full({4}, 6.0)));
      CHECK_FALSE(gradients.find(big).defined());
    });
    CHECK(co_await all_forgotten(all));
    CHECK(me.link_to(1).current_state() == weft::link::state::up);
  });
}

TEST_CASE("autograd shortage: who joined is heard of in messages that do not fit") {
  little_memory_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {4});
    // The reply to worker 0 does not fit; then a request and so a failure of worker 1.
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const auto e = co_await thrown_by(me.peer(1).call<&told_elsewhere>(a, large / 4));
      CHECK(e == errc::resource_exhausted);
      CHECK(service(all, 2).contexts() == 1);
      co_await ctx.backward((a * a).sum());
    });
    CHECK(co_await all_forgotten(all));
    co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
      const auto e = co_await thrown_by(me.peer(1).call<&repeated_elsewhere>(a, large / 4));
      CHECK(e == errc::remote_exception);
      CHECK(e.message().find("bytes of tensors announced") != std::string::npos);
    });
    CHECK(co_await all_forgotten(all));
    for (const std::uint32_t r : {1u, 2u})
      CHECK(me.link_to(r).current_state() == weft::link::state::up);
  });
}

TEST_CASE(
    "autograd shortage: gradients that do not fit fail their pass, and the next one is right") {
  little_memory_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(3, {100'000});
    const backward_options retained{.retention = graph_retention::retain};
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&sum_of_squares>(x);
      at::Tensor held = co_await me.peer(1).call<&filled>(200'000);
      for (int round = 0; round < 2; ++round) {
        const auto e = co_await thrown_by(ctx.backward(y, retained));
        CHECK(e == errc::autograd_pass_aborted);
        CHECK(e.message().find("did not fit") != std::string::npos);
        CHECK_FALSE((co_await ctx.gradients()).find(x).defined());
      }
      CHECK(co_await eventually([&] { return passes_everywhere(all) == 0; }));
      held = at::Tensor();
      co_await ctx.backward(y, retained);
      CHECK(same((co_await ctx.gradients()).find(x), x.detach() * 2));
    });
    CHECK(co_await all_forgotten(all));
    CHECK(me.link_to(1).current_state() == weft::link::state::up);
  });
}

}  // namespace
}  // namespace autograd_shortage
