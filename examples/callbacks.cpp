// SPDX-License-Identifier: BSL-1.0
// A long job that tells its caller how far it is, and stops when the caller says so. Prints
//
//   step 1: loss 8.00
//   step 2: loss 4.00
//   step 3: loss 2.00
//   step 4: loss 1.00
//   it ended after 4 of 100 steps
#include <weft/run.hpp>

#include <cstdio>

/// Returns how many steps it made. `told` says whether to go on; it runs where it was made.
asio::awaitable<int> train(int steps, weft::callback<bool(int, double)> told) {
  double loss = 16;
  for (int step = 1; step <= steps; ++step) {
    loss /= 2;
    if (!co_await told(step, loss)) co_return step;
  }
  co_return steps;
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  const weft::callback<bool(int, double)> told(me, [](int step, double loss) {
    std::printf("step %d: loss %.2f\n", step, loss);
    return loss > 1;
  });
  // A call has 60 s, unless it is told otherwise.
  const int steps = co_await me.peer(1).call<&train>(100, told, weft::within(weft::no_limit));
  std::printf("it ended after %d of 100 steps\n", steps);
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
