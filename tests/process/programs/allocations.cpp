// SPDX-License-Identifier: BSL-1.0
// How often a call allocates once it has run for a while: `allocations <io_threads>`, as two workers.
// Says "<function> caller <n> callee <n>": allocations per 1000 calls in each process.
#include <weft/run.hpp>

#include <atomic>
#include <core/own_operator_new.hpp>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>

namespace allocations {

std::atomic<std::uint64_t> made{0};

asio::awaitable<std::string> later(std::string s) { co_return s; }
std::string plain(std::string s) { return s; }
weft::immediate<std::string> here(std::string s) { return s; }
std::uint64_t there() { return made; }

template <auto F>
asio::awaitable<void> count(weft::peer p, const char* name) {
  constexpr int calls = 1000;
  const std::string text(14, 'x');  // no allocation of its own
  for (int i = 0; i < calls; ++i) static_cast<void>(co_await p.call<F>(text));
  const std::uint64_t theirs = co_await p.call<&there>();
  const std::uint64_t mine = made;
  for (int i = 0; i < calls; ++i) static_cast<void>(co_await p.call<F>(text));
  const std::uint64_t caller = made - mine;
  const std::uint64_t callee = co_await p.call<&there>() - theirs;
  std::cout << std::string(name) + " caller " + std::to_string(caller * 1000 / calls) + " callee " +
                   std::to_string(callee * 1000 / calls) + "\n"
            << std::flush;
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  co_await count<&later>(me.peer(1), "later");
  co_await count<&here>(me.peer(1), "here");
  co_await count<&plain>(me.peer(1), "plain");
}

}  // namespace allocations

bool weft::testing::allocation_fails(std::size_t) noexcept {
  ++allocations::made;
  return false;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  weft::options o;
  o.workers = 2;
  o.io_threads = static_cast<unsigned>(std::stoul(argv[1]));
  return weft::run<weft::unix_socket>(allocations::main_, o);
}
