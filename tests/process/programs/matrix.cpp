// SPDX-License-Identifier: BSL-1.0
// One cell of the matrix of kills and stops: `matrix <tcp|unix> <stage> <victim>`, as one of three
// workers that nobody but the test started. Every other worker is at that stage with the victim
// when it prints "ready"; the victim serves, or has nothing more to do. What a worker's own call,
// pass or step then throws it says: "caller: <errc> <execution> '<peer>'".
#include <weft/optim/distributed.hpp>
#include <weft/run.hpp>

#include <torch/optim/sgd.h>

#include <chrono>
#include <core/for_ever.hpp>
#include <iostream>
#include <string>
#include <thread>

#include <unistd.h>

namespace matrix {

using namespace std::chrono_literals;
using weft::within;
using weft::worker;

std::string stage;
std::uint32_t victim = 0;
constexpr auto long_time = std::chrono::minutes(5);  // longer than any test

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

asio::awaitable<void> wait() { co_await weft::testing::for_ever(); }
void sleep() { std::this_thread::sleep_for(long_time); }
int add(int a, int b) { return a + b; }

constexpr std::int64_t forty_megabytes = 10'000'000;  // floats
std::int64_t take(at::Tensor t) { return t.numel(); }
at::Tensor give() { return at::ones({forty_megabytes}); }

class layer {
 public:
  layer() : weight_(at::ones({8, 8}).set_requires_grad(true)) {}
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight_); }
  at::Tensor weight() { return weight_; }

 private:
  at::Tensor weight_;
};

/// Does something again and again, until the victim is gone.
template <class Round>
asio::awaitable<void> for_ever(Round round) {
  const auto end = std::chrono::steady_clock::now() + long_time;
  for (bool first = true; std::chrono::steady_clock::now() < end; first = false) {
    co_await round();
    if (first) say("ready");
  }
  throw std::runtime_error("nobody ended this");
}

asio::awaitable<void> train(worker& me) {
  const bool steps = stage == "step";
  auto there = me.peer(victim).make<layer>();
  const auto weight = there.remote<&layer::weight>();
  auto optimizer = co_await weft::optim::distributed<torch::optim::SGD>::create(
      me, {weight}, torch::optim::SGDOptions(0.01));
  const at::Tensor x = at::ones({2, 8});
  co_await weft::autograd::with_context(
      me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
        at::Tensor loss = (co_await there.call<&layer::forward>(x)).sum();
        if (steps) co_await ctx.backward(loss);
        // One forward pass, and then what this stage is about, over and over.
        co_await for_ever([&]() -> asio::awaitable<void> {
          if (steps) {
            co_await optimizer.step(ctx);
          } else {
            co_await ctx.backward(loss, {.retention = weft::autograd::graph_retention::retain});
          }
        });
      });
}

asio::awaitable<void> at_stage(worker& me) {
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    static_cast<void>(co_await me.peer(r).call<&add>(1, 2));
  }
  weft::peer to = me.peer(victim);
  if (stage == "leaving") {
    say("ready");
    co_return;
  }
  if (me.rank() == victim) {
    say("ready");
    if (stage != "returned") co_await wait();
    co_return;
  }
  if (stage == "idle") {
    say("ready");
    co_await wait();
  } else if (stage == "returned") {
    say("ready");
    if (me.rank() == 2) co_await wait();  // the run goes on for this one only
  } else if (stage == "coroutine") {
    auto waiting = to.start<&wait>(within(long_time));
    static_cast<void>(co_await to.call<&add>(1, 2));  // starts behind it
    say("ready");
    co_await std::move(waiting);
  } else if (stage == "plain") {
    auto waiting = to.start<&sleep>(within(long_time));
    static_cast<void>(co_await to.call<&add>(1, 2));
    say("ready");
    co_await std::move(waiting);
  } else if (stage == "40MB to") {
    const at::Tensor big = give();
    co_await for_ever([&]() -> asio::awaitable<void> {
      static_cast<void>(co_await to.call<&take>(big, within(long_time)));
    });
  } else if (stage == "40MB from") {
    co_await for_ever([&]() -> asio::awaitable<void> {
      static_cast<void>(co_await to.call<&give>(within(long_time)));
    });
  } else {
    co_await train(me);
  }
}

asio::awaitable<void> main_(worker& me) {
  try {
    co_await at_stage(me);
  } catch (const weft::rpc_error& e) {
    say("caller: " + std::to_string(e.code().value()) + " " +
        std::to_string(static_cast<int>(e.error().ran())) + " '" + e.error().detail().peer + "'");
    throw;
  }
}

/// A good run that prints where the victim listens, which all others call until somebody is killed.
asio::awaitable<void> serve_among_strangers(worker& me) {
  if (me.rank() == victim) {
    for (const auto& a : me.members().self().addresses) say("listens " + a.endpoint);
    co_await wait();
  }
  const auto end = std::chrono::steady_clock::now() + long_time;
  for (int calls = 0; std::chrono::steady_clock::now() < end; ++calls) {
    if (co_await me.peer(victim).call<&add>(calls, 1) != calls + 1)
      throw std::runtime_error("wrong");
    if (calls % 1000 == 0) say("round");
  }
}

}  // namespace matrix

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  matrix::stage = argv[2];
  matrix::victim = static_cast<std::uint32_t>(std::stoul(argv[3]));
  weft::options o;
  o.compute_threads = 4;  // of which two sleep
  // In a meeting rank 2 begins to start only when the others wait.
  o.rendezvous_deadline = std::chrono::seconds(matrix::stage == "rendezvous" ? 20 : 60);
  o.shutdown_deadline = std::chrono::seconds(5);
  o.stall_limit = std::chrono::seconds(5);
  o.lost_after = std::chrono::seconds(4);
  const auto main = matrix::stage == "strangers" ? matrix::serve_among_strangers : matrix::main_;
  if (argv[1] == std::string("tcp")) return weft::run<weft::tcp>(main, o);
  return weft::run<weft::unix_socket>(main, o);
}
