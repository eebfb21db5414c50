// SPDX-License-Identifier: BSL-1.0
// A run that ends while gradients, references and objects are on their way.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>

#include <rref/objects.hpp>
#include <thread>

namespace autograd_tests {

using weft::options;

constexpr over all_kinds[] = {over::inproc, over::tcp, over::unix_socket};

template <class Run>
void run_in_every_way(Run&& run) {
  for (const over how : all_kinds) {
    for (const unsigned io_threads : io_ways(2)) {
      CAPTURE(name_of(how));
      CAPTURE(io_threads);
      run(how, with_io_threads(io_threads));
    }
  }
}
void check_well(const std::vector<weft::error>& ends) {
  for (const weft::error& e : ends) {
    INFO(e.message());
    CHECK_FALSE(e);
  }
}

/// Backward through a node of worker 1 that waits at the door.
asio::awaitable<void> backward_to_the_door(worker& me) {
  const at::Tensor x = leaf(1, {3, 3});
  co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
    const at::Tensor y = co_await me.peer(1).call<&fragile_twice>(x);
    co_await ctx.backward(y.sum());
  });
}

TEST_CASE("autograd ending: a backward pass that nobody waits for is under way") {
  run_in_every_way([](over how, const options& o) {
    gate door;
    fragile::door = &door;
    {
      workers all(2, how, o);
      std::thread opens;
      const auto ends = all.run([&](workers&, worker& me) -> asio::awaitable<void> {
        me.spawn(backward_to_the_door(me)).detach();
        CHECK(co_await eventually([&] { return door.arrived() == 1; }));
        opens = std::thread([&] {
          std::this_thread::sleep_for(20ms);  // sooner or later than the end, both are well
          door.open();
        });
      });
      check_well(ends);
      opens.join();
    }
    fragile::door = nullptr;
  });
}

TEST_CASE("autograd ending: a backward node that does not return is left behind") {
  gate door;
  fragile::door = &door;
  {
    options o = with_io_threads(1);
    o.shutdown_deadline = 300ms;
    workers all(2, over::tcp, o);
    const auto ends = all.run([&](workers&, worker& me) -> asio::awaitable<void> {
      me.spawn(backward_to_the_door(me)).detach();
      CHECK(co_await eventually([&] { return door.arrived() == 1; }));
    });
    INFO(ends[0].message());
    CHECK_FALSE(ends[0]);
    INFO(ends[1].message());
    CHECK(ends[1].message().find("left behind") != std::string::npos);
  }
  fragile::door = nullptr;
}

asio::awaitable<void> use(rref<rref_tests::probe> p) {
  co_await p.call<&rref_tests::probe::add>(1);
}

TEST_CASE("autograd ending: references and objects are on their way") {
  run_in_every_way([](over how, const options& o) {
    auto& probes = rref_tests::record::of_all();
    probes.reset();
    {
      workers all(3, how, o);
      const auto ends = all.run([&](workers&, worker& me) -> asio::awaitable<void> {
        for (int i = 0; i < 50; ++i) {
          auto p = me.peer(1).make<rref_tests::probe>(i);
          me.peer(2).post<&use>(p);
          me.peer(1).post<&use>(p);
        }
        co_return;
      });
      check_well(ends);
    }
    CHECK(probes.made == 50);
    CHECK(probes.destroyed == 50);
  });
}

std::atomic<int> arrived{0};
void pass_tensor(worker& me, const at::Tensor& t, int left) {
  if (t.sum().item<float>() == 1000) ++arrived;
  if (left > 0) me.peer(1 - me.rank()).post<&pass_tensor>(t, left - 1);
}

TEST_CASE("autograd ending: tensors that were posted arrive") {
  run_in_every_way([](over how, const options& o) {
    arrived = 0;
    workers all(2, how, o);
    check_well(all.run([](workers&, worker& me) -> asio::awaitable<void> {
      for (int i = 0; i < 10; ++i) me.peer(1).post<&pass_tensor>(at::ones({1000}), 9);
      co_return;
    }));
    CHECK(arrived == 100);
  });
}

}  // namespace autograd_tests
