// SPDX-License-Identifier: BSL-1.0
// `threads <processes|threads> <io threads> <intra-op threads, 0: default>`: two workers, each of
// which asks the other how many threads libtorch and OpenMP would use in each place where code
// runs.
#include <weft/run.hpp>
#include <weft/transport/tcp.hpp>

#include <ATen/Parallel.h>

#include <array>
#include <atomic>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

#include <dlfcn.h>

namespace threads {

using weft::worker;

/// What libtorch says, and how many threads an OpenMP region has that nobody prepared.
using numbers = std::array<int, 2>;

/// A region as compilers make one for `#pragma omp parallel`, in the runtime that libtorch brought:
/// the compiler's own could be another.
int region() {
  using entry = void (*)(void (*)(void*), void*, unsigned, unsigned);
  const auto parallel = reinterpret_cast<entry>(::dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  if (!parallel) return at::get_num_threads();  // a libtorch without OpenMP
  std::atomic<int> members{0};
  parallel([](void* n) { ++*static_cast<std::atomic<int>*>(n); }, &members, 0, 0);
  return members;
}
/// The region first: asking libtorch would prepare the thread.
numbers here() {
  const int in_region = region();
  return {at::get_num_threads(), in_region};
}

numbers plain() { return here(); }
asio::awaitable<numbers> coroutine() { co_return here(); }
weft::immediate<numbers> light() { return here(); }

std::mutex lock;
numbers in_backward{};
at::Tensor forward(at::Tensor x) {
  at::Tensor y = x * 2;
  y.register_hook([](const at::Tensor&) {
    const numbers now = here();
    const std::lock_guard hold(lock);
    in_backward = now;
  });
  return y;
}
numbers backward_saw() {
  const std::lock_guard hold(lock);
  return in_backward;
}

std::string line(const std::string& where, numbers n) {
  return where + " " + std::to_string(n[0]) + " " + std::to_string(n[1]) + "\n";
}

asio::awaitable<void> main_(worker& me) {
  if (me.rank() != 0) co_return;
  std::string out = line("main", here());
  for (const std::uint32_t rank : {0u, 1u}) {
    weft::peer p = me.peer(rank);
    out += line("plain", co_await p.call<&plain>());
    out += line("coroutine", co_await p.call<&coroutine>());
    out += line("light", co_await p.call<&light>());
    at::Tensor x = at::ones({2}).set_requires_grad(true);
    co_await weft::autograd::with_context(
        me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
          at::Tensor y = co_await p.call<&forward>(x);
          co_await ctx.backward(y.sum());
        });
    out += line("backward", co_await p.call<&backward_saw>());
  }
  std::cout << out << std::flush;
}

}  // namespace threads

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  weft::options o;
  o.workers = 2;
  o.io_threads = static_cast<unsigned>(std::stoul(argv[2]));
  o.intra_op_threads = static_cast<unsigned>(std::stoul(argv[3]));
  if (argv[1] == std::string("threads")) return weft::run<weft::inproc>(threads::main_, o);
  return weft::run<weft::tcp>(threads::main_, o);
}
